// The "precompiled charsmap" of SentencePiece: a double-array trie of byte strings with their replacements.
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
  // blob: a u32 with the bytes of the array, the array, the zero-terminated replacements. Throws Error(kData) with
  // `source`.
  Charsmap(std::string_view blob, const std::string& source);

  bool empty() const { return units_.empty(); }
  // Returns the replacement of the longest matching prefix of the text, and the prefix's length (SentencePiece). Length
  // 0: none.
  std::string_view longest(std::string_view text, std::size_t& length) const;
  // Returns the replacement of the shortest matching prefix, which the reference uses for the whole text.
  std::optional<std::string_view> shortest(std::string_view text) const;

 private:
  template <typename Found>
  void walk(std::string_view text, const Found& found) const;
  std::string_view replacement(std::uint32_t offset) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace magister
