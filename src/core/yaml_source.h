// The text that yaml-cpp reads. Converts yaml-cpp's marks into positions in the file, in code points, and joins
// surrogate escapes, the only change that is made to the text.
#pragma once

#include <yaml-cpp/mark.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/yaml_tree.h"

namespace magister {

class SourceText {
 public:
  // shortened: byte positions after which the file has two more characters (join_surrogates).
  SourceText(std::string_view text, int argument, std::vector<std::size_t> shortened = {})
      : text_(text), argument_(argument), shortened_(std::move(shortened)) {
    line_begins_.push_back(0);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') line_begins_.push_back(i + 1);
    }
  }

  ConfigPosition at_byte(std::size_t byte) const {
    const auto next = std::upper_bound(line_begins_.begin(), line_begins_.end(), byte);
    const auto line = static_cast<std::size_t>(next - line_begins_.begin()) - 1;
    return position(line, byte - line_begins_[line]);
  }
  ConfigPosition at(const YAML::Mark& mark) const {
    if (mark.is_null()) return position(0, 0);
    return position(static_cast<std::size_t>(mark.line), static_cast<std::size_t>(mark.column));
  }
  std::size_t byte_of(const YAML::Mark& mark) const {
    const auto line = std::min(static_cast<std::size_t>(mark.line), line_begins_.size() - 1);
    return line_begins_[line] + static_cast<std::size_t>(mark.column);
  }
  // The text from a mark to the end of its line.
  std::string_view rest_of_line(const YAML::Mark& mark) const {
    if (mark.is_null() || static_cast<std::size_t>(mark.line) >= line_begins_.size()) return {};
    const std::size_t begin = line_begins_[static_cast<std::size_t>(mark.line)] + static_cast<std::size_t>(mark.column);
    if (begin >= text_.size()) return {};
    return text_.substr(begin, text_.find('\n', begin) - begin);
  }

 private:
  ConfigPosition position(std::size_t line, std::size_t byte_column) const {
    if (argument_ != 0) return {argument_, 0, 0};
    line = std::min(line, line_begins_.size() - 1);
    // Counting continues from the last position, so a line of a million values is walked once.
    if (line != last_line_ || byte_column < last_byte_) {
      last_line_ = line;
      last_byte_ = last_column_ = 0;
    }
    const std::string_view part = text_.substr(line_begins_[line] + last_byte_, byte_column - last_byte_);
    const auto continuation = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
    last_column_ += part.size() - static_cast<std::size_t>(std::count_if(part.begin(), part.end(), continuation));
    last_byte_ += part.size();
    const auto first = std::upper_bound(shortened_.begin(), shortened_.end(), line_begins_[line]);
    const auto lost = 2 * (std::upper_bound(first, shortened_.end(), line_begins_[line] + byte_column) - first);
    return {0, static_cast<int>(line) + 1, static_cast<int>(last_column_) + static_cast<int>(lost) + 1};
  }

  std::string_view text_;
  int argument_;
  std::vector<std::size_t> shortened_;
  std::vector<std::size_t> line_begins_;
  mutable std::size_t last_line_ = 0, last_byte_ = 0, last_column_ = 0;
};

// JSON writes a character beyond U+FFFF as two escapes, "\\ud83d\\ude00"; YAML has one escape, "\\U0001F600", and
// yaml-cpp stops after the first of two. Joins such pairs in the double-quoted text in which yaml-cpp stopped, at byte
// `stop`; other texts have no escapes. Appends to `shortened` the positions at which the text is now two characters
// shorter. Returns false if there was no pair.
bool join_surrogates(std::string& text, std::size_t stop, std::vector<std::size_t>& shortened);

}  // namespace magister
