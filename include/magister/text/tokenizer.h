// Tokenizer: strings <-> token ids, identical to the Python `tokenizers` package on the same file, and to
// `sentencepiece`, `tiktoken` and llama.cpp on theirs. Reads tokenizer.json (Hugging Face), a GGUF vocabulary, a
// SentencePiece model, a tiktoken list or tekken.json. Unknown components are refused by name.
// Source: huggingface/tokenizers 0.2x formats; ggml GGUF key names.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "magister/core/types.h"

namespace magister {

// The tokenizer part of a GGUF file's metadata, filled by the code that reads the file (io is a sibling module).
struct GgufVocabulary {
  std::string model;  // tokenizer.ggml.model: gpt2, gemma4, llama, t5 or bert
  std::string pre;    // tokenizer.ggml.pre, a name such as llama-bpe; empty: not given
  std::vector<std::string> tokens;
  std::vector<std::int32_t> token_types;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<double> scores;             // llama and t5: the best token has the highest score
  std::vector<std::string> merges;
  std::string precompiled_charsmap;  // t5: bytes
  std::string name;                  // general.name; decides the rules for Phi-3's tokens
  std::int64_t bos_id = -1, eos_id = -1, unknown_id = -1, padding_id = -1, separator_id = -1, cls_id = -1;
  std::optional<bool> add_bos, add_eos;  // absent: the model and the pre-tokenizer's name decide
  std::optional<bool> add_space_prefix, remove_extra_whitespaces;
  std::optional<bool> lowercase, strip_accents;  // bert
};

// The JSON texts of the files next to a vocabulary that name further tokens; empty: no such file.
struct TokenizerConfigFiles {
  // tokenizer_config.json, special_tokens_map.json, added_tokens.json
  std::string config, special_tokens_map, added_tokens;
  std::string folder;  // for messages
};

// The BOS and EOS tokens that texts get; absent: the default of the kind (BPE adds BOS, Unigram adds EOS).
struct SentencePieceEnds {
  std::optional<bool> add_bos, add_eos;
};

struct EncodeOptions {
  bool add_special_tokens = true;  // BOS/EOS as the file's post-processor says
  // "<|im_end|>" in the text becomes the special token (Hugging Face's default).
  bool special_tokens_in_text = true;
  bool guarded = false;  // the text has guards, see guard_special_tokens(); they are dropped
};

// Immutable after construction; encode() and decode() may be called from several threads at once.
class Tokenizer {
 public:
  // All throw Error(kData) with `source` (the file's name) in the message. Tokens named by the files next to a
  // vocabulary get the ids that transformers gives them.
  static Tokenizer from_json(std::string_view tokenizer_json, const std::string& source,
                             const TokenizerConfigFiles& config_files = {});
  // For GGUF, tiktoken and tekken the files next to the vocabulary may name only tokens that it already has.
  static Tokenizer from_gguf(const GgufVocabulary& vocabulary, const std::string& source,
                             const TokenizerConfigFiles& config_files = {});
  static Tokenizer from_sentencepiece(std::string_view model, const std::string& source, const SentencePieceEnds& ends,
                                      const TokenizerConfigFiles& config_files = {});
  // Lines "base64 rank".
  static Tokenizer from_tiktoken(std::string_view list, const std::string& source,
                                 const TokenizerConfigFiles& config_files = {});
  static Tokenizer from_tekken(std::string_view tekken_json, const std::string& source,
                               const TokenizerConfigFiles& config_files = {});
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // text is UTF-8; throws Error(kData) on invalid UTF-8. Appends to ids.
  void encode(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& ids) const;
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Returns untrusted text for use in a template, with a noncharacter (U+FDD0) inside every special token written in
  // it. encode() with `guarded` then reads the template's special tokens as such and those of the text as plain text.
  std::string guard_special_tokens(std::string_view text) const;
  // Returns the text as encode() with `guarded` reads it.
  static std::string without_guards(std::string_view text);
  // Returns for each of the ids that `text` (without guards) was encoded to the byte where it ends in the text; a token
  // begins where the previous one ends. Nothing if the tokens do not spell the text: a normalizer changed it, or a
  // character has no token.
  std::optional<std::vector<std::size_t>> token_ends(std::string_view text, std::span<const TokenId> ids) const;
  // Ids without a token add nothing: models have more rows than their vocabularies have tokens, and sample them now and
  // then.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  // Returns the bytes that a token adds to a text, before invalid UTF-8 is replaced; empty if no token has the id.
  std::string_view token_bytes(TokenId id) const;
  // Reports whether decode() leaves the token out with skip_special_tokens.
  bool is_special(TokenId id) const;

  // Highest id + 1, added tokens included.
  std::int64_t vocab_size() const;
  // The same without the tokens that the files next to the vocabulary name.
  std::int64_t own_size() const;
  // Named tokens for chat templates from the files next to the vocabulary: names such as pad_token and their texts.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const;
  // SHA-256 in hex of what determines the ids: the file's content (of a GGUF vocabulary a canonical form) and what the
  // files next to it change.
  const std::string& sha256() const;
  // The same for what the file means, however it is written: equal for two files that give every text the same ids
  // (except for BOS and EOS around it) and every id the same token.
  const std::string& rules_sha256() const;
  // Id of a token by its exact text; -1: no such token.
  TokenId token_to_id(std::string_view token) const;

  struct Model;  // src/text/tokenizer_model.h

 private:
  explicit Tokenizer(std::unique_ptr<Model> model);
  std::unique_ptr<Model> model_;
};

}  // namespace magister
