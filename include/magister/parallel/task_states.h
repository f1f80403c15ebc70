// What has become of the tasks of an experiment, known to all ranks: who has begun one, and how it ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

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

  // These from any rank.
  bool begin(std::size_t task);                       // true for one caller alone
  bool begun(std::size_t task) const;                 // somebody was that caller
  void end(std::size_t task, std::uint64_t outcome);  // once, by who has begun it; outcome: above 0
  std::uint64_t outcome(std::size_t task) const;      // 0: it has not ended

  // After every rank's last call. Collective over the world.
  void free();

 private:
  std::unique_ptr<SharedCounters> counters_;
};

}  // namespace magister
