// Code points of UTF-8 text and their classes, by the Unicode version of the reference tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace magister {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;
};

// The code point at text[at]; text is well-formed UTF-8 and at < text.size().
inline CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {static_cast<char32_t>((first & 0x1F) << 6 | (byte(1) & 0x3F)), 2};
  if (first < 0xF0) {
    return {static_cast<char32_t>((first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F)), 3};
  }
  return {
      static_cast<char32_t>((first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F)),
      4};
}

void append_utf8(std::string& text, char32_t code_point);

enum CharClass : std::uint16_t {
  kLetter = 1,
  kNumber = 2,
  kDigit = 4,
  kSpace = 8,
  kWord = 16,
  kUnknownToNfc = 32,
  kMark = 64,
  kNonspacingMark = 128,  // as the Bert normalizer defines them
  kBertControl = 256,     // removed by the Bert normalizer's clean_text
  kPunctuation = 512,     // split off by the Bert and Punctuation pre-tokenizers
  kUnknownToNfkd = 1024,
};
// Returns bits of CharClass, by one table look-up.
std::uint16_t char_class(char32_t code_point);
inline bool is_letter(char32_t c) { return (char_class(c) & kLetter) != 0; }
inline bool is_number(char32_t c) { return (char_class(c) & kNumber) != 0; }
inline bool is_space(char32_t c) { return (char_class(c) & kSpace) != 0; }

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };
// Normal forms by utf8proc. Code points that the reference's older normaliser leaves alone neither move nor compose, so
// the text between them is normalised separately. text is well-formed UTF-8.
std::string normal_form(std::string_view text, UnicodeForm form);
// Maps each code point by itself, as Rust's char::to_lowercase does.
std::string lowercase(std::string_view text);

}  // namespace magister
