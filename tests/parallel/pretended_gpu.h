// Levers and records of the pretended CUDA runtime and NCCL.
#pragma once

#include <cstddef>
#include <string>

namespace magister {

struct PretendedGpu {
  // Levers.
  int questions_until_done = 3;  // ncclCommGetAsyncError calls until a call is in flight
  int stream_busy = 0;           // cudaStreamQuery calls until the stream is done
  int events_busy = 0;           // cudaEventQuery calls until all events are reached
  bool fail_at_once = false, peer_lost = false, stream_fails = false, no_unique_id = false;
  bool call_hangs = false;     // a blocking call returns only when its communicator is aborted
  std::size_t free_bytes = 0;  // reported by the driver
  int first_bus = 0;           // of this process's two devices, on a host that has more
  bool devices_reach = true, handles_open = true, sums_are_wrong = false;
  // Records.
  int questions = 0, collectives = 0, aborts = 0, communicators = 0, allocations = 0;
  int finalized = 0, destroyed = 0;
  int calls_without_blocking = 0;  // collectives that would start a thread each
  int stream_priority = 0;         // of the stream made last
  int opened = 0, accesses = 0;    // open handles of other processes; devices that were made to reach another
  int kernels = 0;
  int messages = 0, groups = 0, messages_alone = 0;  // messages_alone: outside a group, where two ranks would deadlock
  bool id_arrived = false, non_blocking = false;
  std::string algorithm;
};

extern PretendedGpu pretended_gpu;

}  // namespace magister
