// Numbers of JSON that no double holds, such as 1e400: valid, and Python reads them as infinity. nlohmann's parser ends at the first of
// them, so a text that has one is read once more with zeros in their places.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

constexpr int kNumberTooLarge = 406;  // the id of nlohmann's error

struct LargeNumber {
  std::uint64_t index = 0;  // of the text's numbers in order
  std::string spelling;
};

struct WithoutLargeNumbers {
  std::string text;  // of the same length: blanks behind each zero
  std::vector<LargeNumber> numbers;
};

// json: valid up to its end, or up to a place where a parser stops anyway.
WithoutLargeNumbers without_large_numbers(std::string_view json);

// Whether a number is written without fraction and exponent.
inline bool is_whole_spelling(std::string_view number) { return number.find_first_of(".eE") == std::string_view::npos; }

// Hands out the numbers that were taken out, by counting all that a parser meets.
class LargeNumbersInOrder {
 public:
  explicit LargeNumbersInOrder(std::vector<LargeNumber> numbers = {}) : numbers_(std::move(numbers)) {}
  // Of the next number of the text: its spelling where it was taken out, else null.
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
