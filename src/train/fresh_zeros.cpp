// An anonymous mapping, unmapped with the tensor; see fresh_zeros.h.
#include "magister/train/fresh_zeros.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "magister/core/error.h"
#include "magister/core/huge_pages.h"

namespace magister {

at::Tensor fresh_zeros(std::int64_t size) {
  MAGISTER_ASSERT(size >= 0);
  if (size == 0) return at::zeros({0}, at::kFloat);
  const std::size_t num_bytes = static_cast<std::size_t>(size) * sizeof(float);
  void* const data = ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MAGISTER_CHECK(data != MAP_FAILED, ExitCode::kConfig,
                 "the system does not give {} bytes of memory: {} (weights and moments of a training need them); use "
                 "more ranks or hosts, or a smaller model",
                 num_bytes, std::strerror(errno));
  prefer_huge_pages(data, num_bytes);
  return at::from_blob(data, {size}, [num_bytes](void* memory) { ::munmap(memory, num_bytes); }, at::kFloat);
}

}  // namespace magister
