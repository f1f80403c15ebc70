// Messages that are under way at once, between two ranks both ways.
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
  int peer = 0;        // to or from it; of a broadcast its root
  bool sends = false;  // this rank gives the bytes; of no meaning to a broadcast
};

// Those of two ranks meet in their order. Returns when all have arrived. Collective over the ranks that are named.
void exchange(const Communicator& world, std::span<const Transfer> transfers, int tag);

// Messages that have begun and that nobody waits for: the program goes on while they are under way. Those of two ranks meet in their order, by tag.
class PendingExchange {
 public:
  PendingExchange();  // nothing is under way
  // kept: the tensors that the transfers point into. They stay until the messages are over; where this is destroyed before, for good, since
  // MPI may still write to them. Local.
  PendingExchange(const Communicator& world, std::span<const Transfer> transfers, int tag,
                  std::vector<at::Tensor> kept);
  ~PendingExchange();
  PendingExchange(PendingExchange&& other) noexcept;
  PendingExchange& operator=(PendingExchange&& other) noexcept;

  // Moves the messages on; all have arrived, or there were none. By another thread than the main one: threads_may_exchange(). Local.
  bool done();
  // Until then. Local.
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Any thread may (MPI_THREAD_MULTIPLE). Local.
bool threads_may_exchange();

// The same lengths and roots on every rank. Collective over world.
void broadcast_all(const Communicator& world, std::span<const Transfer> transfers);

}  // namespace magister
