// One step of splitmix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", 2014): a hash from a
// key to pseudorandom bits; and random numbers made with it. A key names the purpose of a number, never the rank that
// draws it.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace magister {

inline std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Uniform in (0, 1].
inline double uniform_number(std::uint64_t key) { return static_cast<double>((splitmix64(key) >> 11) + 1) * 0x1p-53; }

// Normal distribution with mean 0 and deviation 1: the Box-Muller transformation of two uniform numbers, in double.
inline double normal_number(std::uint64_t key) {
  const std::uint64_t own = splitmix64(key);
  return std::sqrt(-2 * std::log(uniform_number(own))) * std::cos(2 * std::numbers::pi * uniform_number(~own));
}

}  // namespace magister
