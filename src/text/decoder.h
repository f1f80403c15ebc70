// Decoders: turn tokens back into text, step by step over the list of tokens.
// Source: huggingface/tokenizers decoders.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/pre_tokenizer.h"

namespace magister {

class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
  // Returns the bytes that a token adds in the middle of a text.
  virtual std::string inside(std::string token) const { return token; }
};
using DecodeStepPtr = std::unique_ptr<DecodeStep>;

DecodeStepPtr make_byte_level_decoder();
DecodeStepPtr make_byte_fallback_decoder();
DecodeStepPtr make_fuse_decoder();
DecodeStepPtr make_replace_decoder(const std::string& literal, std::string content);
DecodeStepPtr make_strip_decoder(std::string character, std::size_t start, std::size_t stop);
DecodeStepPtr make_metaspace_decoder(std::string replacement, bool drop_first);
DecodeStepPtr make_wordpiece_decoder(std::string prefix, bool clean_up);
DecodeStepPtr make_bpe_decoder(std::string suffix);
DecodeStepPtr make_decoder_sequence(std::vector<DecodeStepPtr> steps);

// Replaces invalid UTF-8 by U+FFFD, one for each maximal ill-formed part, as Rust's from_utf8_lossy does.
std::string replace_invalid_utf8(std::string_view bytes);
// Counts the bytes at the end that could still become a character; 0 if the text is complete or the bytes can never be
// one.
std::size_t incomplete_utf8_at_end(std::string_view bytes);

}  // namespace magister
