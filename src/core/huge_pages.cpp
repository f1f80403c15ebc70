// Calls madvise(2) for the whole 2 MiB pages inside a range; see huge_pages.h.
#include "magister/core/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace magister {

void prefer_huge_pages(void* data, std::size_t num_bytes) noexcept {
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage,
                       end = (address + num_bytes) / kHugePage * kHugePage;
  if (begin < end) ::madvise(static_cast<std::byte*>(data) + (begin - address), end - begin, MADV_HUGEPAGE);
}

}  // namespace magister
