// Spool: an append-only temporary file that has no name: it vanishes with its descriptor, even after kill -9.
// All throw Error(kInputOutput). Local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "magister/core/file_descriptor.h"

namespace magister {

class Spool {
 public:
  Spool() = default;
  // Made in `directory` (the results' file system: the same space will be needed there anyway).
  explicit Spool(const std::string& directory);

  void append(std::span<const std::byte> bytes);
  void append(const void* data, std::size_t num_bytes) { append({static_cast<const std::byte*>(data), num_bytes}); }

  // Reading starts after rewind(), when everything is appended: fills `out` as far as there is data, returns the number
  // of bytes.
  void rewind();
  std::size_t read(std::span<std::byte> out);
  // The same from a byte of the file, without moving the place of read(). Needs rewind() before, too.
  std::size_t read_at(std::uint64_t position, std::span<std::byte> out) const;

 private:
  void flush();
  std::string directory_;
  FileDescriptor descriptor_;
  std::uint64_t written_ = 0, position_ = 0;
  std::vector<std::byte> buffer_;  // of writing, then of reading
  std::span<std::byte> unread_;
};

}  // namespace magister
