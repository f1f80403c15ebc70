// Which tokens of a GGUF vocabulary end a text: what its keys name, and what llama.cpp knows by their texts, whatever the keys say.
// Source: llama.cpp src/llama-vocab.cpp (llama_vocab_is_eog; the version in llama-cpp-python 0.3.36).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "magister/core/types.h"
#include "magister/text/tokenizer.h"

namespace magister {

// tokenizer.ggml.*_token_id; -1: the file has no such key.
struct GgufEndKeys {
  std::int64_t eot = -1, eom = -1, fim_pad = -1, fim_repository = -1, fim_separator = -1;
};

// The token of eos_token_id first, the others ascending. Ids that the vocabulary does not have are passed over. Empty where it has none.
std::vector<TokenId> gguf_end_tokens(const GgufVocabulary& vocabulary, const GgufEndKeys& keys);

// Whether a token of this text is a control token, whatever type the file gives it.
bool is_gguf_end_text(std::string_view text);

}  // namespace magister
