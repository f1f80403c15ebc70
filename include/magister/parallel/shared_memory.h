// Memory that the ranks of a host share, instead of a copy in each rank. It is a memfd, a file without a name or disk
// space, which the kernel frees when the last rank has ended, however it ended. /dev/shm is not used, because it is
// small in containers. Source: memfd_create(2), proc(5).
#pragma once

#include <cstddef>
#include <memory>

#include "magister/parallel/communicator.h"

namespace magister {

class SharedMemory {
 public:
  // The memory is zeroed and is allocated at first touch. Returns nullptr on every rank if one of them cannot access
  // the memory of the first: another host, or a container with its own process ids. num_bytes > 0, the same on all
  // ranks. Collective over ranks.
  static std::shared_ptr<SharedMemory> make(const Communicator& ranks, std::size_t num_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  SharedMemory(std::byte* data, std::size_t num_bytes) : data_(data), num_bytes_(num_bytes) {}

  std::byte* data_;
  std::size_t num_bytes_;
};

// Those of the ranks that read each other's memory as fast as their own: on one host, with all cores at one NUMA node
// or each at several. Collective over ranks.
Communicator ranks_near_memory(const Communicator& ranks);
// The NUMA nodes of this host that have cores; 1 if the system does not say. Local.
int num_memory_nodes();

}  // namespace magister
