// Whether two trees say the same: numbers by value, expressions by their values at points that a hash draws, structures part by part. Not symmetric, as
// Math-Verify: the gold answer says what counts. README.md of this folder names the rules.
#pragma once

#include <cstdint>
#include <string>

#include "text/math/evaluate.h"
#include "text/math/tree.h"

namespace magister::math {

struct Comparison {
  bool equal = false;
  std::string why;  // in a few words
};

class Comparer {
 public:
  // Equal seeds: equal points.
  explicit Comparer(std::uint64_t seed) : seed_(seed) {}
  Comparison compare(const TreePtr& gold, const TreePtr& answer);

 private:
  Comparison say(bool equal, std::string why) { return {equal, std::move(why)}; }
  Comparison percents(const TreePtr& gold, const TreePtr& answer);
  Comparison plain(const TreePtr& gold, const TreePtr& answer);
  Comparison values(const TreePtr& gold, const TreePtr& answer);
  Comparison at_points(const Tree& gold, const Tree& answer);
  Comparison members(const std::vector<TreePtr>& gold, const std::vector<TreePtr>& answer, bool ordered);
  Comparison relations(const Tree& gold, const Tree& answer);
  Comparison equations(const Tree& gold, const Tree& answer);
  Comparison matrices(const TreePtr& gold, const TreePtr& answer);
  Point point_of(const std::vector<std::string>& names, int number) const;

  std::uint64_t seed_;
  Budget budget_;
};

// A form that is equal for answers that compare as equal (but for percent signs and numbers that round alike only nearly): what a majority is taken over.
std::string form_of(const TreePtr& tree);

}  // namespace magister::math
