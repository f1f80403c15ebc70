// The pre-tokenizers that tokenizer.ggml.pre names: a GGUF file holds only the name, not the pattern.
#pragma once

#include <string>
#include <string_view>

#include "text/pre_tokenizer.h"

namespace magister {

struct GgufPreType {
  std::string_view name;
  std::string_view cut;        // gguf_pre.cpp: the expressions to apply in order
  bool ignore_merges = false;  // a whole piece that is a token becomes that token
  bool add_bos = false;        // default of tokenizer.ggml.add_bos_token
  bool nfc = false;            // the family's tokenizer.json composes characters first
};

// Throws Error(kData) naming the known types if `name` is unknown.
const GgufPreType& gguf_pre_type(const std::string& name, const std::string& source);
PreTokenizerPtr gguf_pre_tokenizer(const GgufPreType& type, const std::string& source);

}  // namespace magister
