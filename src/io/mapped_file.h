// A regular file mapped read-only. Owns the mapping; move-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace magister {

class MappedFile {
 public:
  // Throws Error(kInputOutput) naming the path for anything that is not a readable regular file. A FIFO does not block.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Gives the pages of [begin, end) back to the system: they are read once and would count as our memory.
  void forget(const std::byte* begin, const std::byte* end) const noexcept;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace magister
