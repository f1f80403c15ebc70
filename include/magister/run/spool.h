// Spool: an append-only temporary file without a name: it disappears with its descriptor, even after kill -9. All
// functions throw Error(kInputOutput). Local.
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
  // Makes the file in `directory` (use the results' file system: the same space will be needed there anyway).
  explicit Spool(const std::string& directory);

  void append(std::span<const std::byte> bytes);
  void append(const void* data, std::size_t num_bytes) { append({static_cast<const std::byte*>(data), num_bytes}); }

  // Reading starts with rewind(), after everything is appended. read() fills `out` as far as there is data and returns
  // the number of bytes.
  void rewind();
  std::size_t read(std::span<std::byte> out);
  // Reads from a byte position of the file; read() continues where it was. Also needs rewind() before.
  std::size_t read_at(std::uint64_t position, std::span<std::byte> out) const;

 private:
  void flush();
  std::string directory_;
  FileDescriptor descriptor_;
  std::uint64_t written_ = 0, position_ = 0;
  std::vector<std::byte> buffer_;  // for writing, then for reading
  std::span<std::byte> unread_;
};

}  // namespace magister
