// NcclCommunicator: one NCCL communicator of a GPU group. It starts in non-blocking mode, so that a missing peer ends
// in an exception. Its collectives block, because a non-blocking one starts a thread per call; a watchdog ends a call
// that does not return. Source: NCCL 2.28 user guide ("Fault Tolerance", "Creating a communicator with options").
#pragma once

#include <nccl.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/parallel/watchdog.h"

namespace magister {

// Makes NCCL's sums reproducible. NCCL reads its environment once, so whatever uses NCCL first in a process calls it.
// Variables that the user has set stay. Local.
void set_reproducible_defaults();

class NcclCommunicator {
 public:
  struct Place {
    int rank, size, device;  // rank and size of the group; CUDA runtime index
  };
  // channels: number for every collective; 0: NCCL chooses. Throws Error(kInternal). Collective over the group.
  NcclCommunicator(const Place& place, const ncclUniqueId& id, int channels);
  // Gives up work in flight, unless close() was called. Local.
  ~NcclCommunicator() { abort(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // start(ncclComm_t) -> ncclResult_t queues a collective. A failure, or a call that does not return in time, aborts
  // the communicator and throws Error(kInternal).
  template <typename Start>
  void call(const char* name, const Start& start) {
    enter(name);
    const ncclResult_t result = start(comm_);
    leave(name);
    settle(result, name);
  }

  // Polls `done`, and asks NCCL for errors in between.
  template <typename Done>
  void wait_until(const Done& done) {
    const auto begin = Clock::now();
    while (!done()) {
      check_peers();
      pause_within(begin, "the group's collectives");
    }
  }

  // Ends the communicator in order, after queued work is done and every member has called it. If a member does not call
  // it, the communicator is given up with a warning. Collective over the group.
  void close() noexcept;
  [[noreturn]] void abort_and_fail(const char* call, const std::string& problem);

 private:
  using Clock = std::chrono::steady_clock;

  void let_calls_block(ncclConfig_t config);
  void check_not_failed() const;
  void enter(const char* name);
  void leave(const char* name);
  void settle(ncclResult_t result, const char* name);
  void check_peers();
  void pause_within(Clock::time_point begin, const char* name);
  void abort() noexcept;
  std::string no_answer() const;

  Place place_;
  Clock::duration patience_;
  ncclComm_t comm_ = nullptr;
  std::mutex mutex_;  // protects the two flags below, which the watchdog's thread uses, too
  bool calling_ = false, stalled_ = false;
  Watchdog watchdog_;
};

// A new communicator's id, made by the first member, if every member has its devices (CUDA runtime indices). All agree
// before NCCL is called, because a rank that does not join would keep the others waiting for minutes. Throws
// Error(kConfig) on every member otherwise. Collective over members.
ncclUniqueId agreed_nccl_id(const Communicator& members, const std::vector<int>& devices);

}  // namespace magister
