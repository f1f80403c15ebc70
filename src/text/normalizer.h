// Normalizers: change a text before it is split into pieces.
// Source: huggingface/tokenizers normalizers; google/sentencepiece normalizer.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/charsmap.h"
#include "text/unicode.h"

namespace magister {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;  // well-formed UTF-8 in and out
};
using NormalizerPtr = std::unique_ptr<Normalizer>;

NormalizerPtr make_unicode_normalizer(UnicodeForm form);
NormalizerPtr make_lowercase();
NormalizerPtr make_strip(bool left, bool right);
NormalizerPtr make_strip_accents();
NormalizerPtr make_nmt();
NormalizerPtr make_prepend(std::string text);  // does nothing to an empty text
NormalizerPtr make_replace(const std::string& literal, std::string content);
NormalizerPtr make_pattern_replace(const std::string& pattern, std::string content, const std::string& source);
NormalizerPtr make_precompiled(std::string_view charsmap, const std::string& source);
NormalizerPtr make_byte_level_normalizer();
struct BertRules {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};
NormalizerPtr make_bert_normalizer(BertRules rules);
struct SentencePieceRules {
  std::string charsmap;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true,
       whitespace_as_suffix = false;
  std::vector<std::string> user_defined;  // texts that are never changed
};
NormalizerPtr make_sentencepiece_normalizer(SentencePieceRules rules, const std::string& source);
NormalizerPtr make_normalizer_sequence(std::vector<NormalizerPtr> steps);

}  // namespace magister
