// See memory_parts.h.
#include "magister/core/memory_parts.h"

#include "magister/core/units_of_measure.h"

namespace magister {

std::uint64_t sum_of(const MemoryParts& parts) {
  std::uint64_t sum = 0;
  for (const auto& [name, bytes] : parts) sum += bytes;
  return sum;
}

std::string describe(const MemoryParts& parts) {
  std::string list;
  for (const auto& [name, bytes] : parts) list += (list.empty() ? "" : ", ") + name + " " + format_bytes(bytes);
  return list;
}

}  // namespace magister
