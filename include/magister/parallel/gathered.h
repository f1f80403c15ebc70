// Gathers lists of different lengths from all ranks.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "magister/parallel/communicator.h"

namespace magister {

// Returns the elements of all ranks in rank order, on every rank. Collective over world.
template <typename T>
std::vector<T> gathered(const Communicator& world, const std::vector<T>& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(T));
  std::vector<T> all;
  for (const std::string& part : world.all_gather(bytes)) {
    const std::size_t before = all.size();
    all.resize(before + part.size() / sizeof(T));
    std::memcpy(all.data() + before, part.data(), part.size());
  }
  return all;
}

}  // namespace magister
