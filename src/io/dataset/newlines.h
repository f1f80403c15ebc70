// How many line ends a piece of a file holds, and which of its lines are records: 10 GB/s and more, so that counting a data set
// costs no more than reading it.
#pragma once

#include <cstdint>
#include <string_view>

namespace magister {

std::uint64_t count_newlines(std::string_view bytes) noexcept;
// Line ends with this byte behind them.
std::uint64_t count_newlines_before(char next, std::string_view bytes) noexcept;

// JSON's white space alone: between the lines of JSONL, and at a file's end, such a line is no record.
bool is_blank_line(std::string_view line) noexcept;

// A piece of a file of lines, which may begin and end inside a line.
struct LinesOfPiece {
  std::uint64_t ends = 0;
  std::uint64_t records = 0;  // of the lines that begin and end in it
  // Whether what stands before its first line end, and behind its last one, is part of a record.
  bool begins = false, ends_open = false;
};
// skips_blank: blank lines are no records; else every line is one. A piece without a line end is all `begins` and `ends_open`.
LinesOfPiece count_lines(std::string_view piece, bool skips_blank) noexcept;

}  // namespace magister
