// The bytes of a data file from its begin or from any byte on, decompressed on the way: memory is a few hundred KiB and, for
// zstd, the window that the file's writer chose (at most 128 MiB; larger ones are refused).
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
  // At least one byte, or 0 at the end. Throws Error(kData) for damaged or cut off compressed data.
  virtual std::size_t read(std::span<char> out) = 0;
};

// begin: a byte of an uncompressed file; 0 for others. Throws Error(kInputOutput) when the file is not the one that was listed.
std::unique_ptr<ByteStream> open_bytes(const DataFile& file, std::uint64_t begin = 0);

}  // namespace magister
