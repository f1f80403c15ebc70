// Messages that are under way at once, between two ranks both ways.
#pragma once

#include <cstddef>
#include <span>

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
// The same lengths and roots on every rank. Collective over world.
void broadcast_all(const Communicator& world, std::span<const Transfer> transfers);

}  // namespace magister
