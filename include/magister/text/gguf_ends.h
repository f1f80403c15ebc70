// Tokens of a GGUF vocabulary that end a text: those that its keys name, and those that llama.cpp recognises by their
// text whatever the keys say.
// Source: llama.cpp src/llama-vocab.cpp (llama_vocab_is_eog; the version in llama-cpp-python 0.3.36).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "magister/core/types.h"
#include "magister/text/tokenizer.h"

namespace magister {

// tokenizer.ggml.*_token_id; -1: the file lacks the key.
struct GgufEndKeys {
  std::int64_t eot = -1, eom = -1, fim_pad = -1, fim_repository = -1, fim_separator = -1;
};

// Returns the token of eos_token_id first, the others ascending. Ids outside the vocabulary are skipped. Empty if no
// token ends a text.
std::vector<TokenId> gguf_end_tokens(const GgufVocabulary& vocabulary, const GgufEndKeys& keys);

// Reports whether a token with this text is a control token, whatever type the file gives it.
bool is_gguf_end_text(std::string_view text);

}  // namespace magister
