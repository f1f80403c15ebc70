// What the names in tokenizer.ggml.pre stand for: the pattern is not in the file, only its name.
#pragma once

#include <string>
#include <string_view>

#include "text/pre_tokenizer.h"

namespace magister {

struct GgufPreType {
  std::string_view name;
  std::string_view cut;        // gguf_pre.cpp: the expressions, one after the other
  bool ignore_merges = false;  // a whole piece that is a token is that token
  bool add_bos = false;        // unless tokenizer.ggml.add_bos_token says otherwise
  bool nfc = false;            // the family's tokenizer.json composes characters first
};

// Throws Error(kData) naming those that are known.
const GgufPreType& gguf_pre_type(const std::string& name, const std::string& source);
PreTokenizerPtr gguf_pre_tokenizer(const GgufPreType& type, const std::string& source);

}  // namespace magister
