// TextHeapBytes: how many bytes texts of given lengths take in the heap of a results file, their descriptors not counted.
#pragma once

#include <algorithm>
#include <cstdint>

namespace magister {

// Each text, an empty one too, has a header of 16 bytes and is padded to 8. They stand in collections that HDF5 lets grow by doubling to 64 KiB (a
// longer text has its own), where less than one text's size stays unused; the sum is an upper bound that tests hold against files.
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
