// Why a text was not compared with the right answer by value (rule math_verify of verifier.h): it counts as wrong then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace magister {

enum class Unread : std::uint8_t {
  kNone,           // it was compared
  kNothingFound,   // no box, no formula and no number in it
  kNoFormula,      // what was found cannot be read
  kTooLong,        // beyond 64 kB of text, 4096 signs, 200 levels or 2000 digits
  kGold,           // the right answer is one of these
  kNotComparable,  // things of two kinds: a point and a number, an equation and a value
  kNotComputed,    // a value, a sum or a set beyond the bounds, or one that does not exist: 10^{10^{10}}, 1/0
};

// As summaries name them, by number.
constexpr std::array<std::string_view, 7> kUnreadNames = {"compared",      "nothing_found",  "not_read",    "too_long",
                                                          "gold_not_read", "not_comparable", "not_computed"};
constexpr std::size_t kNumUnread = kUnreadNames.size();

}  // namespace magister
