// A regular file mapped read-only. Owns the mapping and the descriptor; move-only. Pages are populated before they are
// touched, so that a file that shrank or a bad disk gives an error and not a SIGBUS. Source: mmap(2), madvise(2).
// MADV_POPULATE_READ exists since Linux 5.14; older kernels fault the pages in one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "magister/core/file_descriptor.h"
#include "magister/io/file_version.h"

namespace magister {

class MappedFile {
 public:
  // Throws Error(kInputOutput) naming the path for anything except a readable regular file. A FIFO does not block.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Throws Error(kInputOutput) if the file was written to since it was mapped: truncated, or overwritten with another
  // model's numbers. Call it before a page is touched (else SIGBUS) and again afterwards. A file that was replaced
  // under its name still reads as before.
  void check_unchanged() const;
  // Brings the pages of [begin, end) into memory. Throws Error(kInputOutput) when that fails.
  void populate(const std::byte* begin, const std::byte* end) const;
  // Releases the pages of [begin, end) except the last, with which the next part begins: they are read once, and would
  // count as this process's memory. A thread that still reads one of them takes it from the page cache again.
  void forget(const std::byte* begin, const std::byte* end) const noexcept;

 private:
  std::string path_;
  FileDescriptor descriptor_;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  FileVersion version_;  // at the time of opening
};

}  // namespace magister
