// See extract.h.
#include "text/math/extract.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "text/math/lexer_tables.h"
#include "text/math/parser.h"
#include "text/math/places.h"
#include "text/math/plain_numbers.h"

namespace magister::math {
namespace {

// The longest text that is read as one formula without dollars.
constexpr std::size_t kMaxWhole = 400;
// The largest distance from the word "answer" to the beginning of the answer, in bytes.
constexpr std::size_t kNear = 50;

// Returns the text with '-' for every minus sign of Unicode, and for hyphens and dashes that join nothing: "3\u20135"
// is a range.
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

// Numbers outside formulas count only near the word "answer" and at the end; a long text is not searched for others.
constexpr std::size_t kTail = 16384;
constexpr std::size_t kWindow = 4096;

std::size_t tail_of(std::string_view text) {
  if (text.size() <= kTail) return 0;
  const std::size_t blank = text.find_first_of(" \n", text.size() - kTail);
  return blank == kNone ? text.size() - kTail : blank;
}

std::vector<Found> numbers_within(std::string_view text, std::size_t begin, std::size_t end) {
  std::vector<Found> all = plain_numbers(text.substr(begin, end - begin));
  for (Found& one : all) {
    one.begin += begin;
    one.end += begin;
  }
  return all;
}

class Search {
 public:
  explicit Search(std::string_view text)
      : text_(text),
        low_(lower(text)),
        boxes_(boxes(text)),
        formulas_(formulas(text)),
        numbers_(numbers_within(text, tail_of(text), text.size())) {}

  Reading read();

 private:
  bool try_one(const Found& found);
  bool try_after(std::string_view word, std::string_view must_follow);

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

// Takes the first formula and the first number close after the last such word; the one that ends later is tried first.
bool Search::try_after(std::string_view word, std::string_view must_follow) {
  const std::size_t at = low_.rfind(word);
  if (at == std::string::npos) return false;
  const std::size_t from = at + word.size();
  if (!must_follow.empty() && low_.find(must_follow, from) == std::string::npos) return false;
  const auto near_one = [&](const std::vector<Found>& all) {
    const auto one = std::find_if(all.begin(), all.end(), [&](const Found& found) { return found.begin >= from; });
    return one == all.end() || one->begin > from + kNear ? nullptr : &*one;
  };
  const std::vector<Found> numbers = numbers_within(text_, at, std::min(text_.size(), from + kWindow));
  const Found* formula = near_one(formulas_);
  const Found* number = near_one(numbers);
  if (formula && number && number->end > formula->end) std::swap(formula, number);
  return (formula && try_one(*formula)) || (number && try_one(*number));
}

Reading Search::read() {
  if (try_after("final answer is", "i hope it is correct")) return read_;
  for (auto box = boxes_.rbegin(); box != boxes_.rend(); ++box)
    if (try_one(*box)) return read_;
  if (try_after("final answer", "") || try_after("answer", "")) return read_;
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

// Reports whether the text has words of prose, which a formula without dollars never has.
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

// Reads all of the text as one formula.
Reading read_whole(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text.size() > kMaxWhole || is_prose(text)) return {};
  Parsed parsed = parse_formula(text);
  return parsed.tree ? Reading{std::string(text), parsed.tree, "", Unread::kNone} : Reading{};
}

// Reports whether the text after a number is a unit: nothing, " km/h", "\u00B0C", " square feet", " cm^2".
bool is_unit(std::string_view text) {
  bool parted = true;  // "m" alone may be a variable, "m/s" is not
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

// Accepts "Yes" and "no solution": letters and spaces only.
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
