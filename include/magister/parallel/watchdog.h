// Watchdog: a thread that ends the job (exit code 70) if this rank stays in one phase longer than its deadline; the
// message has rank, host, phase and unit. A rank that waits for others is in a phase, too ("waiting for the other
// ranks"), so a stopped or dead peer also ends the job. On rank 0 the watchdog can also call MPI regularly, so that
// one-sided tickets make progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace magister {

class Watchdog {
 public:
  // on_stall gets the message, once per phase, in the watchdog's thread. Without it the message is logged and the job
  // ends. Time during which the whole process was stopped (SIGSTOP, a suspended job) does not count.
  explicit Watchdog(std::chrono::milliseconds default_deadline, bool poke_mpi_progress,
                    std::function<void(const std::string& message)> on_stall = {});
  ~Watchdog();  // joins its thread; local

  // This rank enters a phase ("compute", "write", ...); the clock restarts. unit < 0: no unit.
  void enter(const std::string& phase, std::int64_t unit = -1);
  void enter(const std::string& phase, std::int64_t unit, std::chrono::milliseconds deadline);
  // This rank waits for others, whose work may take longer than any deadline. sign_of_life() is called after each
  // default deadline, and its value must have changed since the previous call. So a rank that is stuck itself reports
  // before the ranks that wait for it. It is called in a thread of the watchdog; the next enter() or leave() waits
  // until it has returned. No answer within 10 s (or within a shorter deadline) counts as no sign. Without
  // MPI_THREAD_MULTIPLE this is the same as enter().
  void wait_for_others(const std::string& phase, std::int64_t unit, std::function<std::uint64_t()> sign_of_life);
  // Stops watching until the next enter().
  void leave();

  std::string where() const;  // "phase compute, unit 12"

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace magister
