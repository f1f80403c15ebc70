// pread into a buffer that grows with the longest line. The file is not mapped, so that a file that shrinks meanwhile
// gives an error and not a SIGBUS.
#include "io/dataset/line_reader.h"

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
  descriptor_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  MAGISTER_CHECK(descriptor_.is_open(), ExitCode::kInputOutput,
                 "{}: cannot be opened ({}; the data set cannot be read); check the "
                 "path and its permissions",
                 printable(path), std::strerror(errno));
  struct stat status{};
  if (::fstat(descriptor_.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    fail(ExitCode::kInputOutput, "{}: is {} (a data set is regular files, which several ranks read at once); {}",
         printable(path), S_ISDIR(status.st_mode) ? "a folder" : "a pipe or a device",
         S_ISDIR(status.st_mode) ? "name its files, for example with *.jsonl" : "write the records into a file");
  }
  version_ = file_version(descriptor_.number()).value_or(FileVersion{});
}

void LineReader::require(const FileVersion& expected) const {
  MAGISTER_CHECK(
      version_ == expected, ExitCode::kInputOutput,
      "{}: changed during the run (it had {} bytes and has {}; records would not be those that were planned); leave "
      "the data alone and start again",
      printable(path_), expected.bytes, version_.bytes);
}

std::size_t LineReader::read_at(std::uint64_t offset, std::span<char> out) const {
  const BytesRead read = read_block(descriptor_, offset, std::as_writable_bytes(out));
  MAGISTER_CHECK(read.error == 0, ExitCode::kInputOutput,
                 "{}: reading at byte {} failed ({}; records would be lost); check the disk", printable(path_),
                 offset + read.count, std::strerror(read.error));
  return read.count;
}

bool LineReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + kChunkBytes) buffer_.resize(end_ + kChunkBytes);
  const std::size_t n = read_at(position_, {buffer_.data() + end_, kChunkBytes});
  position_ += n;
  end_ += n;
  return n > 0;
}

void LineReader::check_length(std::uint64_t num_bytes, std::uint64_t line_number) const {
  MAGISTER_CHECK(num_bytes <= max_line_bytes_, ExitCode::kData,
                 "{}:{}: the line is longer than {} bytes (it is not a record); "
                 "check that the file is JSONL or plain text",
                 printable(path_), line_number, max_line_bytes_);
}

bool LineReader::next(std::string_view& line, std::uint64_t line_number) {
  std::size_t searched = begin_;
  for (;;) {
    const void* found = end_ > searched ? std::memchr(buffer_.data() + searched, '\n', end_ - searched) : nullptr;
    if (found != nullptr) {
      const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
      line = {buffer_.data() + begin_, at - begin_};
      check_length(line.size(), line_number);
      begin_ = at + 1;
      return true;
    }
    const std::size_t pending = end_ - begin_;
    check_length(pending, line_number);
    if (!fill()) {
      line = {buffer_.data() + begin_, pending};
      begin_ = end_;
      return pending > 0;
    }
    searched = begin_ + pending;
  }
}

}  // namespace magister
