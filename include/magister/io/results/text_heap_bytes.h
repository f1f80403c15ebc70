// TextHeapBytes: bytes that texts of given lengths take in the heap of a results file, without their descriptors.
#pragma once

#include <algorithm>
#include <cstdint>

namespace magister {

// Each text, even an empty one, has a header of 16 bytes and is padded to 8. Texts are stored in collections that HDF5
// grows by doubling to 64 KiB (a longer text has its own). In each, less than one text's size stays unused. The sum is
// an upper bound, which tests compare with files.
class TextHeapBytes {
 public:
  void add(std::uint64_t length, std::uint64_t count = 1) {
    const std::uint64_t object = kHeader + (length + 7) / 8 * 8;
    bytes_ += object * count;
    longest_ = std::max(longest_, object);
  }
  std::uint64_t bytes() const {
    if (bytes_ == 0) return 0;
    const std::uint64_t unused = std::min(longest_ + kHeader, kCollection / 2);
    return bytes_ + bytes_ / (kCollection - unused) * unused + bytes_ / (kCollection / 2) * kHeader + 2 * kCollection;
  }

 private:
  static constexpr std::uint64_t kHeader = 16, kCollection = 64 << 10;
  std::uint64_t bytes_ = 0, longest_ = 0;
};

}  // namespace magister
