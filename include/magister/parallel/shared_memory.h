// Memory that the ranks of a host have in common: what each would else hold a copy of, and send to the others. A file without a name or a
// place on a disk (memfd), which is gone when the last rank has ended, whatever it died of; /dev/shm, small in containers, is not used.
// Source: memfd_create(2), proc(5).
#pragma once

#include <cstddef>
#include <memory>

#include "magister/parallel/communicator.h"

namespace magister {

class SharedMemory {
 public:
  // Zeros, which take memory when they are first touched. Nothing, on every rank, where one of them cannot see the others' memory: another host,
  // or a container with processes of its own. num_bytes > 0, the same on all. Collective over ranks.
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

}  // namespace magister
