// Watchdog: a thread that ends the job when this rank stays in one phase longer than its deadline, with rank, host,
// phase and unit in the message (exit code 70). A rank that waits for others is in a phase too ("waiting for the other
// ranks"), so a stopped or dead peer ends the job as well. On rank 0 it also pokes MPI progress for one-sided tickets.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace magister {

class Watchdog {
 public:
  // on_stall (of tests) gets the message, once a phase, in the watchdog's thread; without it the message is logged and
  // the job ended. Time during which this whole process was stopped (SIGSTOP, a suspended job) does not count.
  explicit Watchdog(std::chrono::milliseconds default_deadline, bool poke_mpi_progress,
                    std::function<void(const std::string& message)> on_stall = {});
  ~Watchdog();  // joins its thread; local

  // This rank enters a phase ("compute", "write", ...); the clock restarts. unit < 0: none.
  void enter(const std::string& phase, std::int64_t unit = -1);
  void enter(const std::string& phase, std::int64_t unit, std::chrono::milliseconds deadline);
  // This rank waits for others, whose work may take longer than any deadline: sign_of_life() is asked at the default one and again after each as
  // long a time, and must have changed meanwhile. So who is itself stuck says so first. It is called in a thread of the watchdog's; the next
  // enter() or leave() waits until it has returned. No answer within 10 s (and the deadline) is no sign.
  // Without MPI_THREAD_MULTIPLE as enter().
  void wait_for_others(const std::string& phase, std::int64_t unit, std::function<std::uint64_t()> sign_of_life);
  // Nothing is watched until the next enter().
  void leave();

  std::string where() const;  // "phase compute, unit 12"

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace magister
