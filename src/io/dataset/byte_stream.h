// The bytes of a data file, from its beginning or from any byte on, decompressed while reading. Memory is a few hundred
// KiB and, for zstd, the window that the file's writer chose (at most 128 MiB; larger ones are refused).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "io/dataset/dataset_files.h"

namespace magister {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Reads at least one byte, or 0 bytes at the end. Throws Error(kData) for damaged or truncated compressed data.
  virtual std::size_t read(std::span<char> out) = 0;
};

// begin: a byte of an uncompressed file; 0 for compressed files. Throws Error(kInputOutput) if the file changed since
// it was listed.
std::unique_ptr<ByteStream> open_bytes(const DataFile& file, std::uint64_t begin = 0);

}  // namespace magister
