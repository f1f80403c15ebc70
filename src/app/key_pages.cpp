#include "app/key_pages.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace magister {

// configs/README.md; scripts/cmake/EmbedFile.cmake writes the source.
extern const unsigned char kConfigsReadme[];
extern const std::size_t kConfigsReadmeBytes;

namespace {

std::string without_marks(std::string_view cell) {
  std::string text(cell);
  for (const std::string_view mark : {"**", "`", "\\"}) {
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos;) text.erase(at, mark.size());
  }
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  text.erase(0, begin);
  while (!text.empty() && (text.back() == '|' || text.back() == ' ')) text.pop_back();
  return text;
}

// "| `key` | default | range | meaning |": the meaning may hold bars, the cells before it end at " | ".
bool read_row(std::string_view line, KeyEntry& entry) {
  const std::size_t tick = line.starts_with("| `") ? line.find("` |", 3) : std::string_view::npos;
  if (tick == std::string_view::npos) return false;
  std::array<std::size_t, 3> bars = {tick + 2};
  for (std::size_t i = 1; i < bars.size(); ++i) {
    bars[i] = line.find(" | ", bars[i - 1] + 1);
    if (bars[i] == std::string_view::npos) return false;
    ++bars[i];
  }
  entry = {std::string(line.substr(3, tick - 3)), without_marks(line.substr(bars[0] + 1, bars[1] - bars[0] - 1)),
           without_marks(line.substr(bars[1] + 1, bars[2] - bars[1] - 1)), without_marks(line.substr(bars[2] + 1))};
  return true;
}

}  // namespace

std::vector<KeyEntry> key_entries() {
  const std::string_view page(reinterpret_cast<const char*>(kConfigsReadme), kConfigsReadmeBytes);
  std::vector<KeyEntry> entries;
  for (std::size_t begin = 0; begin < page.size();) {
    const std::size_t end = std::min(page.find('\n', begin), page.size());
    if (KeyEntry entry; read_row(page.substr(begin, end - begin), entry)) entries.push_back(std::move(entry));
    begin = end + 1;
  }
  return entries;
}

}  // namespace magister
