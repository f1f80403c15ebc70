// An unnamed temporary file: O_TMPFILE, or a file that is unlinked at once if the file system has no O_TMPFILE.
#include "magister/run/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "magister/core/error.h"

namespace magister {
namespace {
constexpr std::size_t kBufferBytes = 1 << 20;
}

Spool::Spool(const std::string& directory) : directory_(directory) {
  descriptor_.reset(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!descriptor_.is_open() && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT)) {
    std::string name = directory + "/.magister-spool-XXXXXX";
    descriptor_.reset(::mkostemp(name.data(), O_CLOEXEC));
    if (descriptor_.is_open()) ::unlink(name.c_str());
  }
  MAGISTER_CHECK(descriptor_.is_open(), ExitCode::kInputOutput,
                 "{}: cannot make a temporary file ({}; the tokens are kept there until the results file is sized); "
                 "make the folder writable",
                 directory, std::strerror(errno));
  buffer_.reserve(kBufferBytes);
}

void Spool::append(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() >= kBufferBytes) flush();
}

void Spool::flush() {
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::pwrite(descriptor_.number(), buffer_.data() + done, buffer_.size() - done,
                               static_cast<off_t>(written_ + done));
    if (n < 0 && errno == EINTR) continue;
    MAGISTER_CHECK(n > 0, ExitCode::kInputOutput,
                   "{}: cannot write {} bytes of a temporary file ({}; the work needs them); free space on this file "
                   "system",
                   directory_, buffer_.size() - done, std::strerror(errno));
    done += static_cast<std::size_t>(n);
  }
  written_ += buffer_.size();
  buffer_.clear();
}

void Spool::rewind() {
  flush();
  position_ = 0;
  unread_ = {};
}

std::size_t Spool::read_at(std::uint64_t position, std::span<std::byte> out) const {
  const BytesRead read = read_block(descriptor_, position, out);
  MAGISTER_CHECK(read.error == 0, ExitCode::kInputOutput,
                 "{}: cannot read a temporary file back ({}; what it holds is lost); check "
                 "the disk",
                 directory_, std::strerror(read.error));
  return read.count;
}

std::size_t Spool::read(std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    if (unread_.empty()) {
      buffer_.resize(kBufferBytes);
      const std::size_t n = read_at(position_, buffer_);
      if (n == 0) break;
      position_ += n;
      unread_ = std::span(buffer_).first(n);
    }
    const std::size_t count = std::min(out.size() - done, unread_.size());
    std::memcpy(out.data() + done, unread_.data(), count);
    unread_ = unread_.subspan(count);
    done += count;
  }
  return done;
}

}  // namespace magister
