#include "tasks/exam/export_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "magister/core/utf8.h"

namespace magister {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// U+0085 and U+2028, U+2029 end lines for some readers of text files.
bool ends_line(std::string_view point) {
  return point == "\xC2\x85" || point == "\xE2\x80\xA8" || point == "\xE2\x80\xA9";
}

bool is_refused(std::string_view point) {
  const auto first = static_cast<unsigned char>(point[0]);
  if (first < 0x20) return first != '\t' && first != '\n';
  if (first == 0x7F) return true;
  if (first == 0xC2) return static_cast<unsigned char>(point[1]) < 0xA0;
  return point == "\xEF\xBF\xBE" || point == "\xEF\xBF\xBF";
}

std::string_view without_space(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// True for what most texts are: nothing in them is replaced.
bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= ' ' && c < 0x7F) || c == '\n' || c == '\t'; });
}

bool is_empty(std::string_view text) { return shown_text(text).empty(); }

std::string fault_of_item(const ExamItem& item) {
  if (is_empty(item.stem)) return "its stem is empty";
  if (item.kind == ItemKind::kNumeric) {
    const bool sound = std::isfinite(item.value) && std::isfinite(item.tolerance) && item.tolerance >= 0;
    return sound ? "" : "its value or tolerance is not a number";
  }
  if (item.kind == ItemKind::kShortAnswer) {
    if (item.accepted.empty()) return "no answer is accepted";
    for (const std::string& answer : item.accepted) {
      if (is_empty(answer)) return "an accepted answer is empty";
    }
    return "";
  }
  if (item.choices.size() < 2) return "it has fewer than two choices";
  if (item.choices.size() > 26) return "it has more than 26 choices";
  if (item.key >= item.choices.size()) return "its key is none of its choices";
  for (const ItemChoice& choice : item.choices) {
    if (item.kind == ItemKind::kChoice && is_empty(choice.text)) return "a choice is empty";
  }
  return item.kind == ItemKind::kTrueFalse && item.choices.size() != 2 ? "it has more than two choices" : "";
}

}  // namespace

std::string shown_text(std::string_view text) {
  if (is_plain(text)) return std::string(without_space(text));
  std::string result;
  while (!text.empty()) {
    const std::size_t size = utf8_sequence_length(text);
    const std::string_view point = text.substr(0, size == 0 ? 1 : size);
    if (size == 0) {
      result += kReplacement;
    } else if (point == "\r") {
      if (!text.substr(1).starts_with('\n')) result += '\n';
    } else if (ends_line(point)) {
      result += '\n';
    } else {
      result += is_refused(point) ? kReplacement : point;
    }
    text.remove_prefix(point.size());
  }
  return std::string(without_space(result));
}

std::string one_line(std::string_view text) {
  std::string line = shown_text(text);
  for (char& c : line) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return line;
}

std::string markup(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string markup_lines(std::string_view text, std::string_view line_break) {
  std::string result;
  for (const char c : markup(text)) {
    if (c == '\n') {
      result += line_break;
    } else {
      result += c;
    }
  }
  return result;
}

std::string moodle_short_answer(std::string_view text) {
  std::string result;
  for (const char c : one_line(text)) {
    if (c == '*') result += '\\';
    result += c;
  }
  return result;
}

std::vector<std::string> refused_everywhere(const Exam& exam) {
  std::vector<std::string> faults;
  for (const ExamItem& item : exam.items) {
    if (const std::string fault = fault_of_item(item); !fault.empty()) {
      faults.push_back(fmt::format("item {}: {}", printable(item.id), fault));
    }
  }
  return faults;
}

std::string_view truth_word(const ExamItem& item, std::size_t index) {
  const std::string_view word = index < item.choices.size() ? std::string_view(item.choices[index].text) : "";
  if (!word.empty()) return word;
  return index == 0 ? "True" : "False";
}

}  // namespace magister
