// mmap of a whole file. O_NONBLOCK lets open() return for a FIFO, which is then refused by its kind.
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "magister/core/error.h"

namespace magister {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  MAGISTER_CHECK(descriptor >= 0, ExitCode::kInputOutput, "{}: cannot be opened ({}); check the path and its permissions",
                 printable(path), std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail(ExitCode::kInputOutput, "{}: is not a regular file (only files can be mapped); give a file", printable(path));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (size_ > 0) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int error = errno;
    if (address != MAP_FAILED) data_ = static_cast<const std::byte*>(address);
    ::close(descriptor);
    MAGISTER_CHECK(data_ != nullptr, ExitCode::kInputOutput, "{}: cannot be mapped ({}); check the memory limits",
                   printable(path), std::strerror(error));
  } else {
    ::close(descriptor);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::forget(const std::byte* begin, const std::byte* end) const noexcept {
  constexpr std::uintptr_t kPage = 4096;
  const auto first = (reinterpret_cast<std::uintptr_t>(begin) + kPage - 1) / kPage * kPage;
  const auto last = reinterpret_cast<std::uintptr_t>(end) / kPage * kPage;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace magister
