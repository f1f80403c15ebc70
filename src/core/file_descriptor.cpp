// read_block() by pread(2); see file_descriptor.h.
#include "magister/core/file_descriptor.h"

namespace magister {

BytesRead read_block(const FileDescriptor& file, std::uint64_t offset, std::span<std::byte> block) noexcept {
  BytesRead read;
  while (read.count < block.size()) {
    const std::span<std::byte> rest = block.subspan(read.count);
    const ssize_t n = ::pread(file.number(), rest.data(), rest.size(), static_cast<off_t>(offset + read.count));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) read.error = errno;
    if (n <= 0) break;
    read.count += static_cast<std::size_t>(n);
  }
  return read;
}

}  // namespace magister
