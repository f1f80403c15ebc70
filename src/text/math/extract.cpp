// See extract.h.
#include "text/math/extract.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "text/math/lexer_tables.h"
#include "text/math/parser.h"
#include "text/math/plain_numbers.h"

namespace magister::math {
namespace {

constexpr auto kNone = std::string_view::npos;
// A formula without dollars is no longer.
constexpr std::size_t kMaxWhole = 400;
// How far behind the word "answer" it may stand.
constexpr std::size_t kNear = 50;

bool starts_at(std::string_view text, std::size_t at, std::string_view what) {
  return text.substr(std::min(at, text.size())).starts_with(what);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpaces);
  return first == kNone ? std::string_view() : text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// Behind the brace that closes the one at `open`; kNone: none does.
std::size_t behind_braces(std::string_view text, std::size_t open) {
  std::int64_t depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else {
      depth += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
      if (depth == 0) return at + 1;
    }
  }
  return kNone;
}

std::vector<Found> boxes(std::string_view text) {
  constexpr std::string_view kBoxed = "\\boxed";
  constexpr int kMaxOpenBoxes = 20;  // that do not close
  int open_boxes = 0;
  std::vector<Found> all;
  for (std::size_t at = text.find(kBoxed); at != kNone; at = text.find(kBoxed, at)) {
    std::size_t open = at + kBoxed.size();
    while (open < text.size() && text[open] == ' ') ++open;
    Found found{at, open, ""};
    if (open < text.size() && text[open] == '{') {
      const std::size_t end = behind_braces(text, open);
      if (end == kNone) {
        if (++open_boxes > kMaxOpenBoxes) break;
        at = open;
        continue;
      }
      found.end = end;
      found.formula = text.substr(open + 1, end - open - 2);
    } else {
      found.end = std::min(text.find_first_of(" $\n.,", open), text.size());
      found.formula = text.substr(open, found.end - open);
    }
    at = std::max(found.end, open);
    if (!trimmed(found.formula).empty()) all.push_back(std::move(found));
  }
  return all;
}

struct Environment {
  std::string_view open, close;
  bool one_line;
};
constexpr Environment kEnvironments[] = {{"$$", "$$", false},
                                         {"$", "$", true},
                                         {"\\[", "\\]", false},
                                         {"\\(", "\\)", true},
                                         {"\\begin{align*}", "\\end{align*}", false},
                                         {"\\begin{align}", "\\end{align}", false},
                                         {"\\begin{equation*}", "\\end{equation*}", false},
                                         {"\\begin{equation}", "\\end{equation}", false},
                                         {"[ ", " ]", true}};

// Where the environment closes: not at "\$", and those of one line before its end.
std::size_t closing(std::string_view text, std::size_t from, const Environment& kind) {
  for (std::size_t at = text.find(kind.close, from); at != kNone; at = text.find(kind.close, at + 1))
    if (kind.close[0] != '$' || at == 0 || text[at - 1] != '\\') return at;
  return kNone;
}

std::vector<Found> environments(std::string_view text) {
  std::vector<Found> all;
  // Where a kind does not close, none that opens further on in the same stretch does: a text is gone over once for each kind.
  std::size_t never_before[std::size(kEnvironments)] = {};
  std::size_t line_end = 0;  // of the line in which `at` stands
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '$' && text[at] != '\\' && text[at] != '[') {
      ++at;
      continue;
    }
    if (at >= line_end) line_end = std::min(text.find('\n', at), text.size());
    std::size_t next = at + (starts_at(text, at, "\\$") || starts_at(text, at, "\\\\") ? 2 : 1);
    for (std::size_t i = 0; i < std::size(kEnvironments) && next == at + 1; ++i) {
      const Environment& kind = kEnvironments[i];
      if (at < never_before[i] || !starts_at(text, at, kind.open)) continue;
      const std::size_t from = at + kind.open.size();
      const std::size_t stretch = kind.one_line ? line_end : text.size();
      const std::size_t end = from > stretch ? kNone : closing(text.substr(0, stretch), from, kind);
      if (end == kNone) never_before[i] = stretch;
      if (end == kNone || end == from) continue;
      all.push_back({at, end + kind.close.size(), std::string(text.substr(from, end - from))});
      next = end + kind.close.size();
    }
    at = next;
  }
  return all;
}

bool joins_boxes(std::string_view gap) {
  if (gap.size() < 10) return true;
  return gap.size() <= 40 && (gap.find("and") != kNone || gap.find("or") != kNone || gap.find(',') != kNone);
}

bool joins_formulas(std::string_view gap) {
  if (gap.find('\n') != kNone) return false;
  gap = trimmed(gap);
  return gap == "," || gap == "and" || gap == "or";
}

// What follows each other closely is one list. The last of it is looked for first.
template <typename Joins>
std::vector<Found> joined(const std::vector<Found>& parts, std::string_view text, Joins joins) {
  std::vector<Found> all;
  for (const Found& part : parts) {
    if (!all.empty() && joins(text.substr(all.back().end, part.begin - all.back().end))) {
      all.back().formula += ", " + part.formula;
      all.back().end = part.end;
    } else {
      all.push_back(part);
    }
  }
  for (Found& one : all)
    if (const std::size_t percent = percent_sign(text.substr(one.end));
        percent > 0 && one.formula.find('%') == kNone && one.formula.find(',') == kNone)
      one.formula = "(" + one.formula + ")\\%";
  return all;
}

// With '-' for every minus of Unicode, and for its hyphens and dashes where they join nothing: "3\u20135" is a range.
std::string with_plain_minus(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0xE2) {
      out += text[at++];
      continue;
    }
    const std::string_view three = text.substr(at, 3);
    const bool minus = three == "\u2212" || three == "\uFE63" || three == "\uFF0D";
    const bool dash = three == "\u2010" || three == "\u2011" || three == "\u2012" || three == "\u2013";
    const bool joins = !out.empty() && (std::isalnum(static_cast<unsigned char>(out.back())) != 0 || out.back() == '%');
    if (minus || (dash && !joins)) {
      out += '-';
      at += 3;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

class Search {
 public:
  explicit Search(std::string_view text)
      : text_(text),
        low_(lower(text)),
        boxes_(joined(boxes(text), text, joins_boxes)),
        formulas_(joined(environments(text), text, joins_formulas)),
        numbers_(plain_numbers(text)) {}

  Reading read();

 private:
  bool try_one(const Found& found);
  bool try_behind(std::string_view word, std::string_view must_follow);

  std::string_view text_;
  std::string low_;
  std::vector<Found> boxes_, formulas_, numbers_;
  Reading first_, read_;
};

bool Search::try_one(const Found& found) {
  Parsed parsed = parse_formula(found.formula);
  const Unread unread = parsed.tree ? Unread::kNone : parsed.too_long ? Unread::kTooLong : Unread::kNoFormula;
  Reading reading = {std::string(trimmed(found.formula)), parsed.tree, std::move(parsed.fault), unread};
  if (first_.formula.empty()) first_ = reading;
  if (!reading.tree) return false;
  read_ = std::move(reading);
  return true;
}

// Behind the last such word: the first formula and the first number near it, that which ends later.
bool Search::try_behind(std::string_view word, std::string_view must_follow) {
  const std::size_t at = low_.rfind(word);
  if (at == std::string::npos) return false;
  const std::size_t from = at + word.size();
  if (!must_follow.empty() && low_.find(must_follow, from) == std::string::npos) return false;
  const auto near_one = [&](const std::vector<Found>& all) {
    const auto one = std::find_if(all.begin(), all.end(), [&](const Found& found) { return found.begin >= from; });
    return one == all.end() || one->begin > from + kNear ? nullptr : &*one;
  };
  const Found* formula = near_one(formulas_);
  const Found* number = near_one(numbers_);
  if (formula && number && number->end > formula->end) std::swap(formula, number);
  return (formula && try_one(*formula)) || (number && try_one(*number));
}

Reading Search::read() {
  if (try_behind("final answer is", "i hope it is correct")) return read_;
  for (auto box = boxes_.rbegin(); box != boxes_.rend(); ++box)
    if (try_one(*box)) return read_;
  if (try_behind("final answer", "") || try_behind("answer", "")) return read_;
  constexpr std::size_t kTries = 20;
  std::vector<const Found*> all;
  for (const std::vector<Found>* some : {&formulas_, &numbers_})
    for (std::size_t i = some->size() - std::min(some->size(), kTries); i < some->size(); ++i)
      all.push_back(&(*some)[i]);
  std::stable_sort(all.begin(), all.end(), [](const Found* a, const Found* b) { return a->end > b->end; });
  for (std::size_t i = 0; i < all.size() && i < kTries; ++i)
    if (try_one(*all[i])) return read_;
  if (first_.formula.empty()) return {"", nullptr, "no box, no formula, no number", Unread::kNothingFound};
  return first_;
}

// Whether words of prose stand in it, which no formula without dollars has.
bool is_prose(std::string_view text) {
  std::size_t letters = 0;
  bool command = false;
  std::int64_t braces = 0;
  for (const char c : text) {
    braces += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == '\\') {
      command = true;
      letters = 0;
    } else if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      if (++letters >= 3 && !command && braces == 0) return true;
    } else {
      letters = 0;
      command = false;
    }
  }
  return false;
}

// All of the text as one formula.
Reading read_whole(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text.size() > kMaxWhole || is_prose(text)) return {};
  Parsed parsed = parse_formula(text);
  return parsed.tree ? Reading{std::string(text), parsed.tree, "", Unread::kNone} : Reading{};
}

// What stands behind a number of something: nothing, " km/h", "\u00B0C", " square feet", " cm^2".
bool is_unit(std::string_view text) {
  bool parted = true;  // "m" alone may be a variable, "m/s" is none
  const bool compound = text.find('/') != kNone;
  for (std::size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with("\u00B0C") || text.substr(at).starts_with("\u00B0F")) {
      at += 3;
    } else if (std::isalpha(static_cast<unsigned char>(text[at])) != 0) {
      std::size_t end = at;
      while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end])) != 0) ++end;
      const std::string_view word = text.substr(at, end - at);
      const bool known = std::find(kUnits.begin(), kUnits.end(), word) != kUnits.end() ||
                         (compound && word.size() == 1 && kShortUnits.find(word[0]) != kNone);
      if (!known || !parted) return false;
      at = end;
      parted = false;
      if (text.substr(at).starts_with("^2") || text.substr(at).starts_with("^3")) at += 2;
    } else if (text[at] == ' ' || text[at] == '/' || text[at] == '.') {
      parted = true;
      ++at;
    } else {
      return false;
    }
  }
  return true;
}

// "Yes", "no solution": letters, and blanks between them.
bool is_words(std::string_view text) {
  return !text.empty() && text.size() <= 100 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalpha(c) != 0 || c == ' '; });
}

Reading read_words(std::string_view text) {
  return {std::string(text), named_tree(Kind::kSymbol, lower(text)), "", Unread::kNone};
}

}  // namespace

Reading read_answer(std::string_view given) {
  if (given.size() > kMaxText) return {"", nullptr, "more than 64 kB of text", Unread::kTooLong};
  const std::string text = with_plain_minus(given);
  Reading found = Search(text).read();
  if (found.formula.empty()) {
    Reading whole = read_whole(text);
    if (whole.tree) return whole;
  }
  return found;
}

Reading read_gold(std::string_view given) {
  if (given.size() > kMaxText) return {"", nullptr, "more than 64 kB of text", Unread::kTooLong};
  const std::string plain = with_plain_minus(given);
  std::string_view text = plain;
  if (const std::size_t mark = text.rfind("####"); mark != kNone && text.find("\\boxed") == kNone)
    text.remove_prefix(mark + 4);
  const bool marked = text.find('$') != kNone || text.find("\\boxed") != kNone || text.find("\\[") != kNone ||
                      text.find("\\(") != kNone;
  if (const std::string_view all = trimmed(text); !marked && all.size() <= kMaxWhole) {
    const std::vector<Found> numbers = plain_numbers(all);
    const bool measured = !numbers.empty() && numbers[0].begin == 0 && is_unit(all.substr(numbers[0].end));
    if (measured && all.size() > numbers[0].end) text = all.substr(0, numbers[0].end);
    if (!measured) {
      Reading whole = read_whole(all);
      if (whole.tree) return whole;
    }
  }
  Reading found = Search(text).read();
  return found.formula.empty() && is_words(trimmed(text)) ? read_words(trimmed(text)) : found;
}

}  // namespace magister::math
