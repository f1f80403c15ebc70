// Compares two trees: numbers by value, expressions by their values at points drawn from a hash, structures part by
// part. Not symmetric, like Math-Verify: the gold answer decides what counts. README.md in this folder lists the rules.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "magister/text/unread.h"
#include "text/math/evaluate.h"
#include "text/math/tree.h"

namespace magister::math {

// Two expressions must be equal at this many points: to 35 digits if all numbers are exact, to 13 if there are
// decimals, as in double precision.
constexpr int kPoints = 5;
constexpr int kSameBits = 116;
constexpr int kDecimalBits = 43;

struct Comparison {
  bool equal = false;
  std::string why;                // in a few words
  Unread unread = Unread::kNone;  // kNotComparable or kNotComputed imply not equal
};

class Comparer {
 public:
  // Equal seeds give equal points.
  explicit Comparer(std::uint64_t seed) : seed_(seed) {}
  Comparison compare(const TreePtr& gold, const TreePtr& answer);

 private:
  static Comparison say(bool equal, std::string why) { return {equal, std::move(why), Unread::kNone}; }
  static Comparison not_comparable(std::string why) { return {false, std::move(why), Unread::kNotComparable}; }
  static Comparison not_computed(std::string why) { return {false, std::move(why), Unread::kNotComputed}; }

  // compare.cpp
  Comparison percents(const TreePtr& gold, const TreePtr& answer);
  Comparison plain(const TreePtr& gold, const TreePtr& answer);
  Comparison values(const TreePtr& gold, const TreePtr& answer);
  Comparison at_points(const Tree& gold, const Tree& answer);
  Comparison in_order(const std::vector<TreePtr>& gold, const std::vector<TreePtr>& answer);
  Comparison in_any_order(const std::vector<TreePtr>& gold, const std::vector<TreePtr>& answer);
  Comparison matrices(const TreePtr& gold, const TreePtr& answer);
  // compare_relations.cpp
  Comparison relations(const Tree& gold, const Tree& answer);
  Comparison equations(const Tree& gold, const Tree& answer);
  Comparison up_to_a_factor(const Tree& gold, const Tree& answer, const std::vector<std::string>& names);
  bool same_relation(const Tree& gold, const Tree& answer, bool flip);
  Comparison relation_and_other(const TreePtr& gold, const TreePtr& answer);

  std::uint64_t seed_;
  Budget budget_;
};

// Returns a form that is equal for answers that compare as equal, for majority votes. Exceptions are percent signs and
// numbers close to a rounding boundary.
std::string form_of(const TreePtr& tree);

}  // namespace magister::math
