// Messages that are in flight at the same time, between pairs of ranks in both directions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "magister/parallel/communicator.h"

namespace magister {

struct Transfer {
  void* data = nullptr;
  std::size_t num_bytes = 0;
  int peer = 0;        // the other rank; for a broadcast the root
  bool sends = false;  // this rank sends the bytes; ignored for a broadcast
};

// Messages between two ranks match in the order of the list. Returns when all have arrived. Collective over the ranks
// that are named.
void exchange(const Communicator& world, std::span<const Transfer> transfers, int tag);

// Messages that are in flight while the program continues. Messages between two ranks match in order, per tag.
class PendingExchange {
 public:
  PendingExchange();  // no messages
  // kept: the tensors into which the transfers point. They are held until the messages are complete. If the object is
  // destroyed earlier, or a message cannot be started, they are never freed, since MPI may still write to them. Local.
  PendingExchange(const Communicator& world, std::span<const Transfer> transfers, int tag,
                  std::vector<at::Tensor> kept);
  ~PendingExchange();
  PendingExchange(PendingExchange&& other) noexcept;
  PendingExchange& operator=(PendingExchange&& other) noexcept;

  // Makes progress on the messages. Returns true if all have arrived, or if there were none. Threads other than the
  // main one need threads_may_exchange(). Local.
  bool done();
  // Waits until all messages have arrived. Local.
  void wait();

 private:
  void leave_to_mpi();
  struct State;
  std::unique_ptr<State> state_;
};

// Returns whether any thread may communicate (MPI_THREAD_MULTIPLE). Local.
bool threads_may_exchange();

// Broadcasts several buffers at once. Lengths and roots must be equal on all ranks. Collective over world.
void broadcast_all(const Communicator& world, std::span<const Transfer> transfers);

}  // namespace magister
