// Order of choices by a seed, and the statistics of where the right one is. Local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tasks/exam/item.h"

namespace magister {

// A permutation of 0 ... n - 1 by Fisher and Yates, a function of (seed, id, n) alone: new position i holds the old
// choice result[i]. Each permutation has the same probability.
std::vector<std::size_t> choice_order(std::uint64_t seed, std::string_view id, std::size_t n);

// Orders the choices of an item of kChoice with their explanations and moves the key; other kinds stay as they are.
// Letters that a text or an explanation names ("B is wrong") are not changed: generation must not name letters.
void shuffle_choices(ExamItem& item, std::uint64_t seed);

struct KeyPositions {
  std::vector<std::uint64_t> counts;  // [most choices of an item]: items whose key is there
  double chi_square = 0;              // against each position being equally probable, over items of any sizes
  std::uint64_t degrees = 0;          // most choices - 1; 0: nothing to test
  double p_value = 1;
};
KeyPositions key_positions(const std::vector<ExamItem>& items);

// Probability that chi-square with `degrees` >= 1 is at least x >= 0.
double chi_square_survival(double x, std::uint64_t degrees);

}  // namespace magister
