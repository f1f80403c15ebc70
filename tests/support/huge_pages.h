// Asks, apart from HostCopy, if the ranks of a test can have one copy of weights.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "magister/parallel/communicator.h"
#include "magister/parallel/shared_memory.h"

namespace magister {

// False for one rank, without shared memory, and if the kernel has no huge pages for it on request. A page that it
// lacks at this moment is another matter. Collective over world.
inline bool ranks_share_huge_pages(const Communicator& world) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE
  if (world.size() == 1) return false;
  const std::shared_ptr<SharedMemory> memory = SharedMemory::make(world, kHugePage);
  bool has = false;
  if (world.rank() == 0 && memory != nullptr) {
    *memory->data() = std::byte{1};
    has = ::madvise(memory->data(), kHugePage, kCollapse) == 0 || errno != EINVAL;
  }
  return world.max(std::uint64_t{has ? 1u : 0u}) != 0;
}

}  // namespace magister
