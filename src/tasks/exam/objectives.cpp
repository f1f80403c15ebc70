#include "tasks/exam/objectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "magister/core/error.h"
#include "magister/core/utf8.h"
#include "magister/core/yaml_values.h"

namespace magister {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The bytes of numbers separated by dots at the start of a line; 0: there are none.
std::size_t number_bytes(std::string_view line) {
  std::size_t at = 0, end = 0;
  while (at < line.size() && is_digit(line[at])) {
    while (at < line.size() && is_digit(line[at])) ++at;
    end = at;
    if (at < line.size() && line[at] == '.') ++at;
  }
  return end;
}

// The numbers without leading zeros: "1.01" is "1.1".
std::string canonical(std::string_view number) {
  std::string result;
  for (std::size_t at = 0; at < number.size(); ++at) {
    const bool begins = at == 0 || number[at - 1] == '.';
    if (begins) {
      while (number[at] == '0' && at + 1 < number.size() && is_digit(number[at + 1])) ++at;
    }
    result += number[at];
  }
  return result;
}

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Collects objectives and faults; `place` is "file:7".
class ObjectiveReader {
 public:
  void add(const std::string& place, std::uint64_t line, std::string_view written) {
    const std::size_t size = number_bytes(written);
    const std::string_view number = written.substr(0, size);
    std::string_view rest = written.substr(size);
    if (rest.starts_with('.')) rest.remove_prefix(1);
    if (size == 0 || (!rest.empty() && rest[0] != ' ' && rest[0] != '\t')) {
      fault("{}: \"{}\" begins with no number and a space (items are grouped by it); write a line as 1.1.1.1 text",
            place, printable(written, 60));
      return;
    }
    add(place, line, number, without_blanks(rest));
  }

  void add(const std::string& place, std::uint64_t line, std::string_view number, std::string_view text) {
    if (text.empty()) {
      fault("{}: the objective {} has no text (nothing can be asked about it); add the text", place, number);
      return;
    }
    const auto [earlier, is_new] = places_.try_emplace(canonical(number), place);
    if (!is_new) {
      fault("{}: the number {} is also that of {} (its items would be mixed); number it anew", place, number,
            earlier->second);
      return;
    }
    list_.objectives.push_back({std::string(number), std::string(text), line});
  }

  template <typename... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    if (++num_faults_ <= kMaxObjectiveFaults) list_.faults.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  ObjectiveList finish(const std::string& file) {
    if (num_faults_ > kMaxObjectiveFaults) {
      list_.faults.push_back(fmt::format("{}: {} more faults", printable(file), num_faults_ - kMaxObjectiveFaults));
    }
    if (num_faults_ == 0 && list_.objectives.empty()) {
      list_.faults.push_back(fmt::format(
          "{}: holds no objective (an exam asks about objectives); write lines as 1.1.1.1 text", printable(file)));
    }
    return std::move(list_);
  }

 private:
  ObjectiveList list_;
  std::map<std::string, std::string> places_;
  std::size_t num_faults_ = 0;
};

void read_lines(std::string_view bytes, const std::string& file, ObjectiveReader& reader) {
  for (std::uint64_t number = 1; !bytes.empty(); ++number) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string_view line = without_blanks(bytes.substr(0, end));
    bytes.remove_prefix(std::min(bytes.size(), end + 1));
    if (!line.empty() && line[0] != '#') reader.add(fmt::format("{}:{}", printable(file), number), number, line);
  }
}

// Entries of a list, below the key `objectives` or at the root: maps {number, text}, or texts `1.1 text`.
void read_yaml(std::string_view bytes, const std::string& file, ObjectiveReader& reader) {
  struct Entry {
    std::optional<std::string> whole, number, text;
    std::uint64_t line = 0;
  };
  std::vector<std::pair<std::string, Entry>> entries;
  for (const YamlValue& value : yaml_values(bytes, file)) {
    const std::size_t first = !value.path.empty() && value.path[0] == "objectives" ? 1 : 0;
    const std::size_t depth = value.path.size() - first;
    const std::string key = depth == 2 ? value.path.back() : "";
    if (depth == 0 || depth > 2 || (depth == 2 && key != "number" && key != "text")) {
      reader.fault(
          "{}:{}: {} is not part of a list of objectives (they are not guessed); write - {{number: 1.1, text: ...}}",
          printable(file), value.line, printable(value.path.empty() ? value.text : value.path.back()));
      continue;
    }
    if (entries.empty() || entries.back().first != value.path[first])
      entries.emplace_back(value.path[first], Entry{{}, {}, {}, value.line});
    Entry& entry = entries.back().second;
    (depth == 1 ? entry.whole : key == "number" ? entry.number : entry.text) = value.text;
  }
  for (const auto& [name, entry] : entries) {
    const std::string place = fmt::format("{}:{}", printable(file), entry.line);
    if (entry.whole) {
      reader.add(place, entry.line, without_blanks(*entry.whole));
    } else if (!entry.number || number_bytes(*entry.number) != entry.number->size() || entry.number->empty()) {
      reader.fault("{}: has no number such as 1.1 (items are grouped by it); add number: 1.1", place);
    } else {
      reader.add(place, entry.line, *entry.number, without_blanks(entry.text.value_or("")));
    }
  }
}

}  // namespace

ObjectiveList read_objectives(std::string_view bytes, const std::string& file) {
  ObjectiveReader reader;
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  const std::size_t invalid = find_invalid_utf8(bytes);
  if (invalid != bytes.size()) {
    const auto line = 1 + std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(invalid), '\n');
    reader.fault("{}:{}: byte {} of the file is not UTF-8 (the text would be read wrongly); save the file as UTF-8",
                 printable(file), line, invalid);
  } else if (file.ends_with(".yaml") || file.ends_with(".yml")) {
    try {
      read_yaml(bytes, file, reader);
    } catch (const Error& error) {
      reader.fault("{}", error.what());
    }
  } else {
    read_lines(bytes, file, reader);
  }
  return reader.finish(file);
}

bool objective_before(std::string_view a, std::string_view b) {
  if (a == b) return false;  // items of one objective
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    const std::string left = canonical(a.substr(0, a.find('.'))), right = canonical(b.substr(0, b.find('.')));
    if (left.size() != right.size()) return left.size() < right.size();
    if (left != right) return left < right;
    a.remove_prefix(std::min(a.size(), a.find('.') == std::string_view::npos ? a.size() : a.find('.') + 1));
    b.remove_prefix(std::min(b.size(), b.find('.') == std::string_view::npos ? b.size() : b.find('.') + 1));
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;
}

}  // namespace magister
