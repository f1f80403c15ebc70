// FileDescriptor owns one file descriptor. It is move-only, and its destructor closes it. The user calls the system
// (pread, flock ...) and handles the errors. Source: POSIX.1-2017 close.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace magister {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes the result of open() or a similar call; below 0: none.
  explicit FileDescriptor(int number) noexcept : number_(number) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.number_, -1));
    return *this;
  }

  int number() const noexcept { return number_; }
  bool is_open() const noexcept { return number_ >= 0; }
  // Closes the descriptor and takes `number` instead. Keeps errno, because the caller may still have to report an
  // earlier error.
  void reset(int number = -1) noexcept {
    const int error = errno;
    if (number_ >= 0) ::close(number_);
    number_ = number;
    errno = error;
  }

 private:
  int number_ = -1;
};

// Result of reading a block with pread: fewer bytes than asked for at the end of the file, or after an error.
struct BytesRead {
  std::size_t count = 0;
  int error = 0;  // errno; 0: no error
};
// Reads until the block is full; repeats after short reads and signals.
BytesRead read_block(const FileDescriptor& file, std::uint64_t offset, std::span<std::byte> block) noexcept;

}  // namespace magister
