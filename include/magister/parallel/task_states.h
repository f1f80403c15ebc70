// What has become of the tasks of an experiment, known to all ranks: who has begun one, and how it ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace magister {

class Communicator;
class SharedCounters;

class TaskStates {
 public:
  // None is begun. Collective over world.
  TaskStates(const Communicator& world, std::size_t num_tasks);
  ~TaskStates();  // local
  TaskStates(const TaskStates&) = delete;
  TaskStates& operator=(const TaskStates&) = delete;

  struct State {
    bool begun = false;
    std::uint64_t outcome = 0;  // 0: it has not ended
  };

  // These from any rank.
  bool begin(std::size_t task);                       // true for one caller alone
  void end(std::size_t task, std::uint64_t outcome);  // once, by who has begun it; outcome: above 0
  std::vector<State> read() const;                    // of every task as it was at some moment

  // After every rank's last call. Collective over the world.
  void free();

 private:
  const std::size_t num_tasks_;
  std::unique_ptr<SharedCounters> counters_;
};

}  // namespace magister
