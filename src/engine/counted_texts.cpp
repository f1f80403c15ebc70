// See counted_texts.h.
#include "engine/counted_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace magister {
namespace {

bool may_hold(const TextPlace& place) { return place.bounds.most < 0 || place.count <= place.bounds.most; }
bool may_close(const TextPlace& place) { return place.count >= place.bounds.least && may_hold(place); }

bool has_bit(const std::vector<std::uint64_t>& bits, std::size_t i) { return (bits[i / 64] >> (i % 64) & 1) != 0; }
void drop_bit(std::vector<std::uint64_t>& bits, std::size_t i) { bits[i / 64] &= ~(std::uint64_t{1} << (i % 64)); }

constexpr std::string_view kPlainCharacter = R"([^\0-\x1f\"\\])",
                           kEscape = R"(escape ::= [\"\\bfnrt] | "u00" [017] [0-9a-f])";

// The library makes an automaton of an expression, with a mask for each state, if it repeats at most 128 times.
std::string characters(std::int64_t least, std::int64_t most) {
  if (most == 0) return "\"\"";
  return fmt::format(R"(Regex("(?:[^\\x00-\\x1f\"\\\\]|\\\\(?:[\"\\\\bfnrt]|u00[017][0-9a-f])){{{},{}}}"))", least,
                     most);
}

// Longer strings are chunks followed by a rest that is shorter than a chunk.
std::string in_chunks(const TextBounds& bounds) {
  constexpr std::int64_t kChunk = 64;
  if (bounds.most >= 0 && bounds.most <= 2 * kChunk)
    return fmt::format("root ::= {} \"\\\"\"\n", characters(bounds.least, bounds.most));
  const std::int64_t whole = bounds.least / kChunk, more = bounds.least % kChunk;
  std::string root, rules;
  const auto add = [&](std::int64_t from, std::int64_t to, std::int64_t least, std::int64_t most) {
    if (to >= 0 && from > to) return;
    const std::string name = fmt::format("rest{}_{}", least, most),
                      rule = fmt::format("{} ::= {}\n", name, characters(least, most));
    if (rules.find(rule) == rules.npos) rules += rule;
    root += fmt::format("{}chunk{{{},{}}} {}", root.empty() ? "" : " | ", from, to < 0 ? "" : std::to_string(to), name);
  };
  if (bounds.most < 0) {
    add(whole, whole, more, kChunk - 1);
    add(whole + 1, -1, 0, kChunk - 1);
  } else if (bounds.most / kChunk == whole) {
    add(whole, whole, more, bounds.most % kChunk);
  } else {
    add(whole, whole, more, kChunk - 1);
    add(whole + 1, bounds.most / kChunk - 1, 0, kChunk - 1);
    add(bounds.most / kChunk, bounds.most / kChunk, 0, bounds.most % kChunk);
  }
  return fmt::format("root ::= body \"\\\"\"\nbody ::= {}\nchunk ::= {}\n{}", root, characters(kChunk, kChunk), rules);
}

}  // namespace

std::string bounds_mark(const TextBounds& bounds) {
  return fmt::format("{}{},{};", kBoundsMark, bounds.least, bounds.most);
}

std::string counted_text_grammar(const TextBounds& bounds, bool counts) {
  if (counts)
    return fmt::format("root ::= \"\\\"\" | {} root | \"\\\\\" escape root | \"\\u0001{},{};\"\n{}\n", kPlainCharacter,
                       bounds.least, bounds.most, kEscape);
  return in_chunks(bounds);
}

bool go_on(TextPlace& place, std::string_view bytes, const std::function<TextBounds(std::size_t)>& opened) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (!place.inside) {
      if (c == '"') place = {true, kPlain, 0, opened(i + 1)};
      continue;
    }
    if (place.escape != kPlain) {
      place.escape = after(place.escape, c);
      if (place.escape == kBarred) return false;
      continue;
    }
    if (c == '"') {
      if (!may_close(place)) return false;
      place = {};
      continue;
    }
    place.escape = after(kPlain, c);
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) continue;  // a continuation byte
    ++place.count;
    if (!may_hold(place)) return false;
  }
  return true;
}

CountedTokens::CountedTokens(const std::vector<std::string>& tokens) : tokens_(tokens), chars_(tokens.size()) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<std::uint32_t>(i);
    const std::string& bytes = tokens[i];
    const std::size_t first = bytes.find('"');
    if (first != bytes.npos && first + 1 < bytes.size()) opening_.push_back(id);
    TextPlace place{true, kPlain, 0, {}};
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      if (!go_on(place, std::string_view(bytes).substr(n, 1), [](std::size_t) { return TextBounds{}; })) break;
      if (place.inside) {
        chars_[i] = static_cast<std::uint32_t>(place.count);
        continue;
      }
      closing_.push_back(id);
      const std::size_t next = bytes.find('"', n + 1);
      if (next != bytes.npos && next + 1 < bytes.size()) reopening_.push_back(id);
      break;
    }
    most_chars_ = std::max(most_chars_, chars_[i]);
  }
}

void CountedTokens::bar(std::vector<std::uint64_t>& allowed, const TextPlace& place,
                        const std::function<TextBounds(std::string_view)>& bounds_after) const {
  std::map<std::string_view, TextBounds> known;
  const auto check = [&](std::uint32_t id) {
    if (!has_bit(allowed, id)) return;
    const std::string_view bytes = tokens_[id];
    TextPlace copy = place;
    const bool fits = go_on(copy, bytes, [&](std::size_t n) {
      if (n == bytes.size()) return TextBounds{};  // the token ends here, so the string has no characters yet
      const std::string_view begin = bytes.substr(0, n);
      const auto found = known.find(begin);
      return found != known.end() ? found->second : known.emplace(begin, bounds_after(begin)).first->second;
    });
    if (!fits) drop_bit(allowed, id);
  };
  if (!place.inside) {
    for (const std::uint32_t id : opening_) check(id);
    return;
  }
  if (place.escape != kPlain) {
    for (std::uint32_t id = 0; id < tokens_.size(); ++id) check(id);
    return;
  }
  const std::int64_t least = place.bounds.least, most = place.bounds.most;
  if (most >= 0 && place.count + most_chars_ > most) {
    for (std::size_t i = 0; i < chars_.size(); ++i) {
      if (place.count + chars_[i] > most) drop_bit(allowed, i);
    }
  }
  for (const std::uint32_t id : closing_) {
    if (place.count + chars_[id] < least) drop_bit(allowed, id);
  }
  for (const std::uint32_t id : reopening_) check(id);
}

}  // namespace magister
