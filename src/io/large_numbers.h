// JSON numbers that no double holds, such as 1e400: they are valid, and Python reads them as infinity. nlohmann's
// parser stops at the first of them, so such a text is parsed a second time with zeros in their places.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

constexpr int kNumberTooLarge = 406;  // nlohmann's error id

struct LargeNumber {
  std::uint64_t index = 0;  // among all numbers of the text, in order
  std::string spelling;
};

struct WithoutLargeNumbers {
  std::string text;  // has the same length: blanks after each zero
  std::vector<LargeNumber> numbers;
};

// json: valid to its end, or to a place where a parser stops anyway.
WithoutLargeNumbers without_large_numbers(std::string_view json);

// True if a number is written without fraction and exponent.
inline bool is_whole_spelling(std::string_view number) { return number.find_first_of(".eE") == std::string_view::npos; }

// Gives back the removed numbers while a parser counts the numbers that it meets.
class LargeNumbersInOrder {
 public:
  explicit LargeNumbersInOrder(std::vector<LargeNumber> numbers = {}) : numbers_(std::move(numbers)) {}
  // For the next number of the text: its original spelling if it was removed, else null.
  const std::string* next() {
    const std::uint64_t index = count_++;
    if (taken_ == numbers_.size() || numbers_[taken_].index != index) return nullptr;
    return &numbers_[taken_++].spelling;
  }

 private:
  std::vector<LargeNumber> numbers_;
  std::uint64_t count_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace magister
