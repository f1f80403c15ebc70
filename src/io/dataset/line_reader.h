// Reads bytes and lines of a file from any place on, through one buffer: memory is bounded by the longest line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "magister/core/file_descriptor.h"
#include "magister/io/file_version.h"

namespace magister {

class LineReader {
 public:
  // Throws Error(kInputOutput) for anything that is not a readable regular file; a FIFO does not block.
  LineReader(const std::string& path, std::uint64_t begin = 0, std::uint64_t max_line_bytes = 0);
  ~LineReader() = default;
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  FileVersion version() const { return version_; }
  // Throws Error(kInputOutput) if the opened file has another version.
  void require(const FileVersion& expected) const;

  // The next line without its '\n', valid until the next call; false at the end. A last line needs no '\n'. A line of
  // more than max_line_bytes is Error(kData); line_number is only for that message.
  bool next(std::string_view& line, std::uint64_t line_number);
  // Bytes from `offset` on; fewer than requested only at the end of the file. Does not move next().
  std::size_t read_at(std::uint64_t offset, std::span<char> out) const;

 private:
  bool fill();
  void check_length(std::uint64_t num_bytes, std::uint64_t line_number) const;

  std::string path_;
  FileDescriptor descriptor_;
  FileVersion version_;
  std::uint64_t position_, max_line_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unread part of the buffer
};

}  // namespace magister
