// Asks, apart from HostCopy, if the ranks of a test can have one copy of weights.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
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

// From now on the kernel answers this thread as one older than Linux 6.1: it knows no MADV_COLLAPSE. False: the system
// has no seccomp. Source: seccomp(2), the kernel's Documentation/userspace-api/seccomp_filter.rst.
inline bool refuse_huge_pages() {
  constexpr std::uint32_t kNumber = 0, kAdvice = 32;  // places in seccomp_data: the call, its third argument
  constexpr std::uint32_t kCollapse = 25;
  std::array<sock_filter, 6> steps = {
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
       BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kAdvice), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kCollapse, 0, 1),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{static_cast<unsigned short>(steps.size()), steps.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace magister
