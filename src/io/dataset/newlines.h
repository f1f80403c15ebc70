// Counts the line ends of a piece of a file and the lines that are records, at 10 GB/s or more, so that counting a data
// set costs no more than reading it.
#pragma once

#include <cstdint>
#include <string_view>

namespace magister {

std::uint64_t count_newlines(std::string_view bytes) noexcept;
// Counts line ends that this byte follows.
std::uint64_t count_newlines_before(char next, std::string_view bytes) noexcept;

// True for a line with JSON's white space only. Between the lines of JSONL and at a file's end it is no record.
bool is_blank_line(std::string_view line) noexcept;

// Counts for a piece of a file of lines, which may begin and end inside a line.
struct LinesOfPiece {
  std::uint64_t ends = 0;
  std::uint64_t records = 0;  // complete lines in the piece that are records
  // begins: the text before its first line end is part of a record; ends_open: the text after its last line end is.
  bool begins = false, ends_open = false;
};
// skips_blank: blank lines are no records; else every line is one. In a piece without a line end both flags describe
// the whole piece.
LinesOfPiece count_lines(std::string_view piece, bool skips_blank) noexcept;

}  // namespace magister
