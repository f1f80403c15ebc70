// Memory in pages of 2 MiB: it is mapped as it is touched first, 512 times less often, and its addresses are translated with fewer misses.
#pragma once

#include <cstddef>

namespace magister {

// Only a hint, which a system may not follow, for memory that nobody has touched yet.
void prefer_huge_pages(void* data, std::size_t num_bytes) noexcept;

}  // namespace magister
