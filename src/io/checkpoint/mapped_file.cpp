// mmap of a whole file. O_NONBLOCK makes open() return for a FIFO, which is then refused by its kind.
#include "io/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "magister/core/error.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // glibc older than 2.35
#endif

namespace magister {
namespace {

constexpr std::uintptr_t kPage = 4096;

const char* kind_of(const struct stat& status) {
  if (S_ISDIR(status.st_mode)) return "a folder";
  if (S_ISFIFO(status.st_mode)) return "a pipe";
  if (S_ISSOCK(status.st_mode)) return "a socket";
  return "a device";
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  descriptor_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  MAGISTER_CHECK(descriptor_.is_open(), ExitCode::kInputOutput,
                 "{}: cannot be opened ({}); check the path and its permissions", printable(path),
                 std::strerror(errno));
  struct stat status{};
  const bool known = ::fstat(descriptor_.number(), &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    fail(ExitCode::kInputOutput, "{}: is {} (only a regular file can be mapped); give a file", printable(path),
         known ? kind_of(status) : "not to be examined");
  }
  version_ = file_version(descriptor_.number()).value_or(FileVersion{});
  size_ = version_.bytes;
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_.number(), 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    fail(ExitCode::kInputOutput,
         "{}: its {} bytes cannot be mapped ({}); check the limits of the address space (ulimit -v)", printable(path),
         size_, std::strerror(error));
  }
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::move(other.descriptor_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      version_(other.version_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(version_, other.version_);
  return *this;
}

void MappedFile::check_unchanged() const {
  const FileVersion now = file_version(descriptor_.number()).value_or(FileVersion{});
  MAGISTER_CHECK(
      now == version_, ExitCode::kInputOutput,
      "{}: was written to since it was opened, when it had {} bytes; it has {} now (what was read before and after "
      "would count as one model); leave the file alone during a run, and run the same command again",
      printable(path_), size_, now.bytes);
}

namespace {

// The beginning of the page that holds this byte.
const std::byte* page_of(const std::byte* byte) { return byte - reinterpret_cast<std::uintptr_t>(byte) % kPage; }

}  // namespace

void MappedFile::populate(const std::byte* begin, const std::byte* end) const {
  if (begin >= end) return;
  const std::byte* const first = page_of(begin);
  const std::byte* const last = page_of(end + kPage - 1);
  if (::madvise(const_cast<std::byte*>(first), static_cast<std::size_t>(last - first), MADV_POPULATE_READ) == 0) return;
  const int error = errno;
  const bool unreadable = error == EFAULT || error == EHWPOISON;  // other errors: the pages will be faulted in as usual
  MAGISTER_CHECK(
      !unreadable, ExitCode::kInputOutput,
      "{}: bytes {} to {} cannot be read (the file was cut short during the run, or the disk failed); check both",
      printable(path_), begin - data_, end - data_);
}

void MappedFile::forget(const std::byte* begin, const std::byte* end) const noexcept {
  const std::byte* const first = page_of(begin);
  const std::byte* const last = page_of(end);
  if (first < last) ::madvise(const_cast<std::byte*>(first), static_cast<std::size_t>(last - first), MADV_DONTNEED);
}

}  // namespace magister
