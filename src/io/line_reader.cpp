// pread into a buffer that grows with the longest line.
#include "io/line_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "magister/core/error.h"

namespace magister {
namespace {
constexpr std::size_t kChunkBytes = 1 << 20;
}

LineReader::LineReader(const std::string& path, std::uint64_t begin, std::uint64_t max_line_bytes)
    : path_(path), position_(begin), max_line_bytes_(max_line_bytes) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  MAGISTER_CHECK(descriptor_ >= 0, ExitCode::kInputOutput, "{}: cannot be opened ({}; the data set cannot be read); check the "
                 "path and its permissions", printable(path), std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(ExitCode::kInputOutput, "{}: is no regular file (a data set is read by several ranks at once); give a file",
         printable(path));
  }
  file_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

LineReader::~LineReader() { ::close(descriptor_); }

std::size_t LineReader::read_raw(char* out, std::size_t num_bytes) {
  std::size_t done = 0;
  while (done < num_bytes) {
    const ssize_t n = ::pread(descriptor_, out + done, num_bytes - done, static_cast<off_t>(position_));
    if (n < 0 && errno == EINTR) continue;
    MAGISTER_CHECK(n >= 0, ExitCode::kInputOutput, "{}: reading at byte {} failed ({}; records would be lost); check the disk",
                   printable(path_), position_, std::strerror(errno));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
    position_ += static_cast<std::uint64_t>(n);
  }
  return done;
}

bool LineReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + kChunkBytes) buffer_.resize(end_ + kChunkBytes);
  const std::size_t n = read_raw(buffer_.data() + end_, kChunkBytes);
  end_ += n;
  return n > 0;
}

bool LineReader::next(std::string_view& line, std::uint64_t line_number) {
  std::size_t searched = begin_;
  for (;;) {
    const void* found = end_ > searched ? std::memchr(buffer_.data() + searched, '\n', end_ - searched) : nullptr;
    if (found != nullptr) {
      const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
      line = {buffer_.data() + begin_, at - begin_};
      begin_ = at + 1;
      return true;
    }
    const std::size_t pending = end_ - begin_;
    MAGISTER_CHECK(pending <= max_line_bytes_, ExitCode::kData, "{}:{}: the line is longer than {} bytes (it is no record); "
                   "check that the file is JSONL or plain text", printable(path_), line_number, max_line_bytes_);
    if (!fill()) {
      line = {buffer_.data() + begin_, pending};
      begin_ = end_;
      return pending > 0;
    }
    searched = begin_ + pending;
  }
}

}  // namespace magister
