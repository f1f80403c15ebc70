#include "app/key_pages.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "magister/core/embedded_page.h"

namespace magister {

extern const EmbeddedPage kKeyPages[];

namespace {

// Replaces each link by its text.
void remove_links(std::string& text) {
  for (std::size_t at = 0; (at = text.find("](", at)) != std::string::npos;) {
    const std::size_t open = text.rfind('[', at);
    const std::size_t close = text.find(')', at);
    if (open == std::string::npos || close == std::string::npos) return;
    text.erase(at, close - at + 1);
    text.erase(open, 1);
  }
}

std::string without_marks(std::string_view cell) {
  std::string text(cell);
  remove_links(text);
  for (const std::string_view mark : {"**", "`"}) {
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos;) text.erase(at, mark.size());
  }
  for (std::size_t at = 0; (at = text.find("\\|", at)) != std::string::npos;) text.erase(at, 1);
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  text.erase(0, begin);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// Reads "| `key` | default | range | meaning |". The meaning may contain bars; the cells before it end at " | ".
bool read_row(std::string_view line, KeyEntry& entry) {
  const std::size_t tick = line.starts_with("| `") ? line.find("` |", 3) : std::string_view::npos;
  if (tick == std::string_view::npos || !line.ends_with('|')) return false;
  line.remove_suffix(1);
  std::array<std::size_t, 3> bars = {tick + 2};
  for (std::size_t i = 1; i < bars.size(); ++i) {
    bars[i] = line.find(" | ", bars[i - 1] + 1);
    if (bars[i] == std::string_view::npos) return false;
    ++bars[i];
  }
  entry.name = line.substr(3, tick - 3);
  entry.standard = without_marks(line.substr(bars[0] + 1, bars[1] - bars[0] - 1));
  entry.range = without_marks(line.substr(bars[1] + 1, bars[2] - bars[1] - 1));
  entry.meaning = without_marks(line.substr(bars[2] + 1));
  return true;
}

// "**`judge.combine`**: text" returns "judge.combine" and reduces the line to its text; other lines return "".
std::string read_lead(std::string_view& line) {
  constexpr std::string_view kEnd = "`**: ";
  const std::size_t end = line.starts_with("**`") ? line.find(kEnd) : std::string_view::npos;
  if (end == std::string_view::npos) return {};
  const std::string name(line.substr(3, end - 3));
  line.remove_prefix(end + kEnd.size());
  return name;
}

// A key's paragraphs end before the next bold word, heading, table or example.
class PageReader {
 public:
  explicit PageReader(std::string page) : page_(std::move(page)) {}

  void read(std::string_view line) {
    if (KeyEntry entry; read_row(line, entry)) {
      entry.page = page_;
      entries_.push_back(std::move(entry));
    }
    if (const std::string name = read_lead(line); !name.empty()) {
      current_ = index_of(name);
    } else if (line.starts_with('#') || line.starts_with('|') || line.starts_with("```") ||
               (after_gap_ && line.starts_with("**"))) {
      current_ = kNone;
    }
    after_gap_ = line.empty();
    if (current_ < entries_.size()) add(entries_[current_].details, line);
  }

  std::vector<KeyEntry> take() { return std::move(entries_); }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t index_of(const std::string& name) const {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].name == name) return i;
    }
    return kNone;
  }

  // Keeps an empty line between two paragraphs, but not after the last.
  void add(std::vector<std::string>& details, std::string_view line) {
    if (line.empty()) {
      gap_ = true;
      return;
    }
    if (gap_ && !details.empty()) details.emplace_back();
    gap_ = false;
    const bool continues_item = line.starts_with("  ");
    details.push_back((continues_item ? "  " : "") + without_marks(line));
  }

  std::string page_;
  std::vector<KeyEntry> entries_;
  std::size_t current_ = kNone;  // the entry whose paragraphs are being read
  bool after_gap_ = true;
  bool gap_ = false;
};

}  // namespace

std::vector<KeyEntry> key_entries() {
  std::vector<KeyEntry> entries;
  for (const EmbeddedPage* page = kKeyPages; page->name != nullptr; ++page) {
    PageReader reader(page->name);
    const std::string_view text(reinterpret_cast<const char*>(page->bytes), page->num_bytes);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      reader.read(text.substr(begin, end - begin));
      begin = end + 1;
    }
    for (KeyEntry& entry : reader.take()) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace magister
