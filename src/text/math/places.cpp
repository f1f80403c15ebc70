// See places.h.
#include "text/math/places.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

namespace magister::math {
namespace {

bool starts_at(std::string_view text, std::size_t at, std::string_view what) {
  return text.substr(std::min(at, text.size())).starts_with(what);
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpaces);
  return first == kNone ? std::string_view() : text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

namespace {

// Position after the brace that closes the one at `open`; kNone: none does.
std::size_t past_braces(std::string_view text, std::size_t open) {
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

std::vector<Found> single_boxes(std::string_view text) {
  constexpr std::string_view kBoxed = "\\boxed";
  constexpr int kMaxOpenBoxes = 20;  // boxes that do not close
  int open_boxes = 0;
  std::vector<Found> all;
  for (std::size_t at = text.find(kBoxed); at != kNone; at = text.find(kBoxed, at)) {
    std::size_t open = at + kBoxed.size();
    while (open < text.size() && text[open] == ' ') ++open;
    Found found{at, open, ""};
    if (open < text.size() && text[open] == '{') {
      const std::size_t end = past_braces(text, open);
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

// Position where the environment closes, but not at "\$"; kNone: it does not close.
std::size_t closing(std::string_view text, std::size_t from, const Environment& kind) {
  for (std::size_t at = text.find(kind.close, from); at != kNone; at = text.find(kind.close, at + 1))
    if (kind.close[0] != '$' || at == 0 || text[at - 1] != '\\') return at;
  return kNone;
}

std::vector<Found> environments(std::string_view text) {
  std::vector<Found> all;
  // If a kind does not close, none that opens later in the same stretch does. So a text is searched once for each kind.
  std::size_t never_before[std::size(kEnvironments)] = {};
  std::size_t line_end = 0;  // end of the line that contains `at`
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '$' && text[at] != '\\' && text[at] != '[') {
      ++at;
      continue;
    }
    if (at >= line_end) line_end = std::min(text.find('\n', at), text.size());
    std::size_t next = at + (starts_at(text, at, "\\$") || starts_at(text, at, "\\\\") ? 2 : 1);
    for (std::size_t i = 0; i < std::size(kEnvironments) && next == at + 1; ++i) {
      const Environment& kind = kEnvironments[i];
      if (kind.open[0] != text[at] || at < never_before[i] || !starts_at(text, at, kind.open)) continue;
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

// Joins formulas that follow each other closely into one list, and adds the percent sign after a single formula to it.
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

}  // namespace

std::vector<Found> boxes(std::string_view text) { return joined(single_boxes(text), text, joins_boxes); }
std::vector<Found> formulas(std::string_view text) { return joined(environments(text), text, joins_formulas); }

}  // namespace magister::math
