// DeviceExchange: messages between tensors of several ranks' devices, one device per rank, in a stream of their own
// while the default stream computes. On GPUs NCCL carries them (ncclSend, ncclRecv); where the host computes in place
// of GPUs, MPI does, and every call returns when its work is done. Kernels between messages are queued on the same
// stream, so a sum over the ranks needs no thread that waits. Source: NCCL 2.28 user guide ("Point-to-point
// communication").
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "magister/device/launch.h"
#include "magister/parallel/communicator.h"

namespace magister {

struct DeviceMessage {
  at::Tensor numbers;  // f32, contiguous, on this rank's device
  int peer = 0;        // the other rank
  bool sends = false;  // this rank sends the numbers
};

// Ranks call pass() so that messages can meet: two ranks name their common messages in the same order, and every rank
// that takes part in two rounds of messages begins them in the order in which all others begin them. Tensors are kept
// by the caller until a mark after them is reached.
class DeviceExchange {
 public:
  virtual ~DeviceExchange() = default;  // never collective; gives up work in flight unless close() was called

  // The stream of the messages, for kernels. Local.
  virtual gpu::Queue queue() const = 0;
  // What is queued from now on begins after the work that is queued on the default stream so far. Local.
  virtual void follow_default() = 0;
  // Queues messages that travel at the same time; there may be none. Collective over the ranks that are named.
  virtual void pass(std::span<const DeviceMessage> messages) = 0;
  // Marks the end of what is queued so far. Marks count up from 1. Local.
  virtual std::uint64_t mark() = 0;
  // Returns whether the work before the mark is done. Local.
  virtual bool reached(std::uint64_t mark) = 0;
  // Returns when all queued work is done. Throws Error(kInternal) if the devices cannot communicate any more, or if the
  // work takes longer than 10 minutes (MAGISTER_NCCL_TIMEOUT_SECONDS). Local.
  virtual void wait() = 0;
  // Ends the exchange in order. Collective over the members.
  virtual void close() {}
};

// Returns whether the user allows it: not with MAGISTER_SUMS_BETWEEN_GPUS=0, nor where ranks share a GPU
// (MAGISTER_SHARE_GPUS=1). Local.
bool devices_may_exchange();

// queue: the default stream of this rank's device; every rank has another device. fast: the process's other uses of
// NCCL, which reads its environment once, need not be reproducible. Every pair of ranks is connected when it returns.
// Throws Error(kConfig) if a device is missing. Collective over members.
std::unique_ptr<DeviceExchange> make_device_exchange(const Communicator& members, const gpu::Queue& queue,
                                                     bool fast = false);

}  // namespace magister
