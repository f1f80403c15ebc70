// Lines of a file from any byte on, through one buffer: memory is bounded by the longest line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

class LineReader {
 public:
  // Throws Error(kInputOutput) for anything that is not a readable regular file; a FIFO does not block.
  LineReader(const std::string& path, std::uint64_t begin, std::uint64_t max_line_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  std::uint64_t file_bytes() const { return file_bytes_; }
  // The next line without its '\n', valid until the next call; false at the end. A last line needs no '\n'.
  // line_number is for messages only.
  bool next(std::string_view& line, std::uint64_t line_number);
  // Raw bytes into `out` from the current position (no lines were read before): fewer only at the end of the file.
  std::size_t read_raw(char* out, std::size_t num_bytes);

 private:
  bool fill();
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t file_bytes_ = 0, position_ = 0, max_line_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unread part of the buffer
};

}  // namespace magister
