// FileDescriptor: the one owner of a file descriptor. Move-only; the last owner closes it. Calls with it (pread, flock ...) and their
// errors are its user's. Source: POSIX.1-2017 close.
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
  // What open() and its like return; below 0: none.
  explicit FileDescriptor(int number) noexcept : number_(number) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.number_, -1));
    return *this;
  }

  int number() const noexcept { return number_; }
  bool is_open() const noexcept { return number_ >= 0; }
  // Closes it, and owns another or none from here on. errno stays what it was: who failed still has to say why.
  void reset(int number = -1) noexcept {
    const int error = errno;
    if (number_ >= 0) ::close(number_);
    number_ = number;
    errno = error;
  }

 private:
  int number_ = -1;
};

// What pread gave of a block: fewer bytes than asked for at the file's end, or where an error ended it.
struct BytesRead {
  std::size_t count = 0;
  int error = 0;  // errno; 0: none
};
// Until the block is full, whatever pread gives at once and whatever signals come between.
BytesRead read_block(const FileDescriptor& file, std::uint64_t offset, std::span<std::byte> block) noexcept;

}  // namespace magister
