// The reason why a text was not compared with the right answer by value (rule math_verify of verifier.h); the text
// then counts as wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace magister {

enum class Unread : std::uint8_t {
  kNone,           // compared
  kNothingFound,   // no box, no formula and no number in the text
  kNoFormula,      // the text found cannot be parsed
  kTooLong,        // beyond 64 kB of text, 4096 tokens, 200 levels or 2000 digits
  kGold,           // one of these applies to the right answer
  kNotComparable,  // two kinds of things: a point and a number, an equation and a value
  kNotComputed,    // a value, sum or set beyond the bounds, or one that does not exist: 10^{10^{10}}, 1/0
};

// Names in summaries, by enum value.
constexpr std::array<std::string_view, 7> kUnreadNames = {"compared",      "nothing_found",  "not_read",    "too_long",
                                                          "gold_not_read", "not_comparable", "not_computed"};
constexpr std::size_t kNumUnread = kUnreadNames.size();

}  // namespace magister
