// A pattern is evaluated while it is parsed: each part turns the set of places in the name that were reached into the
// set behind it.
// Source: Python's re; PEFT's get_pattern_key (utils/other.py).
#include "io/checkpoint/name_pattern.h"

#include <cctype>
#include <cstddef>
#include <functional>
#include <vector>

namespace magister {
namespace {

constexpr int kMostGroups = 3;     // within each other: each may cost a factor of the name's length
using Places = std::vector<bool>;  // by place in the name, its end included

struct Unread {
  std::string what;
};

class Matcher {
 public:
  Matcher(std::string_view pattern, std::string_view name) : pattern_(pattern), name_(name) {}

  Places run(const Places& from) {
    Places out = alternatives(from);
    if (at_ < pattern_.size()) unread(1);  // a closing bracket that nothing opened
    return out;
  }

 private:
  [[noreturn]] void unread(std::size_t length) const { throw Unread{std::string(pattern_.substr(at_, length))}; }
  bool is(char c) const { return at_ < pattern_.size() && pattern_[at_] == c; }

  Places alternatives(const Places& from) {
    Places out = sequence(from);
    while (is('|')) {
      ++at_;
      const Places other = sequence(from);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = out[i] || other[i];
    }
    return out;
  }

  Places sequence(Places places) {
    while (at_ < pattern_.size() && !is('|') && !is(')')) places = repeated(places);
    return places;
  }

  // A part and how often it may come.
  Places repeated(const Places& from) {
    const std::size_t begin = at_;
    const Places once = part(from);
    const char times = at_ < pattern_.size() ? pattern_[at_] : '\0';
    if (times == '{') unread(1);
    if (times != '*' && times != '+' && times != '?') return once;
    ++at_;
    if (is('+') || is('*')) unread(1);  // possessive; `?` only changes which of the matches is taken
    if (is('?')) ++at_;
    const std::size_t end = at_;
    Places all = once;
    const auto join = [&all](const Places& more) {
      bool is_new = false;
      for (std::size_t i = 0; i < all.size(); ++i) {
        is_new = is_new || (more[i] && !all[i]);
        all[i] = all[i] || more[i];
      }
      return is_new;
    };
    for (bool grows = times != '?'; grows;) {
      at_ = begin;
      grows = join(part(Places(all)));
    }
    at_ = end;
    if (times != '+') join(from);
    return all;
  }

  Places part(const Places& from) {
    const char c = pattern_[at_];
    if (c == '(') return group(from);
    if (c == '*' || c == '+' || c == '?' || c == '{') unread(1);
    if (c == '^' || c == '$') {
      ++at_;
      Places out(from.size());
      const std::size_t place = c == '^' ? 0 : name_.size();
      out[place] = from[place];
      return out;
    }
    const std::function<bool(char)> fits = one_sign();
    Places out(from.size());
    for (std::size_t i = 0; i < name_.size(); ++i) out[i + 1] = from[i] && fits(name_[i]);
    return out;
  }

  Places group(const Places& from) {
    ++at_;
    if (is('?')) {
      if (pattern_.substr(at_, 2) != "?:") unread(2);
      at_ += 2;
    }
    if (++depth_ > kMostGroups) unread(1);
    Places out = alternatives(from);
    --depth_;
    if (!is(')')) throw Unread{"( without its )"};
    ++at_;
    return out;
  }

  std::function<bool(char)> one_sign() {
    const char c = pattern_[at_];
    if (c == '[') return one_of();
    if (c == '\\') return escaped();
    ++at_;
    if (c == '.') return [](char found) { return found != '\n'; };
    return [c](char found) { return found == c; };
  }

  std::function<bool(char)> escaped() {
    if (at_ + 1 == pattern_.size()) unread(1);
    const char c = pattern_[at_ + 1];
    const auto is_letter = [](char found) { return std::isalnum(static_cast<unsigned char>(found)) != 0; };
    if (is_letter(c) && c != 'd' && c != 'w') unread(2);
    at_ += 2;
    if (c == 'd') return [](char found) { return found >= '0' && found <= '9'; };
    if (c == 'w') return [is_letter](char found) { return is_letter(found) || found == '_'; };
    return [c](char found) { return found == c; };
  }

  std::function<bool(char)> one_of() {
    ++at_;
    const bool others = is('^');
    if (others) ++at_;
    std::vector<std::pair<char, char>> ranges;
    do {
      if (at_ == pattern_.size()) throw Unread{"[ without its ]"};
      if (is('\\') || is('[')) unread(2);
      const char first = pattern_[at_++];
      const bool to = is('-') && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
      ranges.emplace_back(first, to ? pattern_[at_ + 1] : first);
      if (to) at_ += 2;
    } while (!is(']'));
    ++at_;
    return [ranges, others](char found) {
      bool inside = false;
      for (const auto& [first, last] : ranges) inside = inside || (found >= first && found <= last);
      return inside != others;
    };
  }

  std::string_view pattern_, name_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string unread_in_pattern(std::string_view pattern) {
  try {
    Matcher(pattern, "").run({true});
  } catch (const Unread& unread) {
    return unread.what;
  }
  return "";
}

bool pattern_names(std::string_view pattern, std::string_view name) {
  Places from(name.size() + 1);
  from[0] = true;
  for (std::size_t i = 0; i < name.size(); ++i) from[i + 1] = name[i] == '.';
  return Matcher(pattern, name).run(from)[name.size()];
}

}  // namespace magister
