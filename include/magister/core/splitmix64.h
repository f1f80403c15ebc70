// One step of splitmix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", 2014): from a key to a number whose bits
// are as good as random. Draws are keyed by what they are for, never by who makes them.
#pragma once

#include <cstdint>

namespace magister {

inline std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace magister
