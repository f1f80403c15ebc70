// The "precompiled charsmap" of SentencePiece: a double array of byte strings and what replaces each.
// Source: google/sentencepiece normalizer.cc and darts-clone; huggingface/spm_precompiled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

class Charsmap {
 public:
  Charsmap() = default;
  // blob: u32 bytes of the array, the array, the replacements with a zero behind each. Throws Error(kData) with `source`.
  Charsmap(std::string_view blob, const std::string& source);

  bool empty() const { return units_.empty(); }
  // The longest beginning of the text that has a replacement, and that (SentencePiece). Length 0: there is none.
  std::string_view longest(std::string_view text, std::size_t& length) const;
  // The replacement of the shortest beginning, which the reference takes for all of the text.
  std::optional<std::string_view> shortest(std::string_view text) const;

 private:
  template <typename Found>
  void walk(std::string_view text, const Found& found) const;
  std::string_view replacement(std::uint32_t offset) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace magister
