// A regular file mapped read-only. Owns the mapping and the descriptor; move-only.
// Pages are asked for before they are touched, so that a file that shrank or a bad disk is an error and not a SIGBUS.
// Source: mmap(2), madvise(2); MADV_POPULATE_READ is there since Linux 5.14, older kernels fault pages in one by one.
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
  // Throws Error(kInputOutput) naming the path for anything that is not a readable regular file. A FIFO does not block.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Throws Error(kInputOutput) when the file was written to since it was mapped: cut short, or numbers of another model over its own. To be
  // asked before a page is touched (SIGBUS) and behind it. A file that another has replaced under its name stays what it was.
  void check_unchanged() const;
  // Brings the pages of [begin, end) into memory. Throws Error(kInputOutput) when that fails.
  void populate(const std::byte* begin, const std::byte* end) const;
  // Gives the pages of [begin, end) back to the system: they are read once and would count as our memory.
  void forget(const std::byte* begin, const std::byte* end) const noexcept;

 private:
  std::string path_;
  FileDescriptor descriptor_;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  FileVersion version_;  // when it was opened
};

}  // namespace magister
