// Tokenizer: strings <-> token ids, identical to the Python `tokenizers` package on the same file,
// and to `sentencepiece`, `tiktoken` and llama.cpp on theirs. Read from tokenizer.json (Hugging Face), a GGUF vocabulary, a
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

// The tokenizer part of a GGUF file's metadata, filled by whoever read the file (io is a sibling module).
struct GgufVocabulary {
  std::string model;  // tokenizer.ggml.model: gpt2, gemma4, llama, t5 or bert
  std::string pre;    // tokenizer.ggml.pre, a name such as llama-bpe; empty: the file names none
  std::vector<std::string> tokens;
  std::vector<std::int32_t> token_types;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<double> scores;             // of llama and t5: the best token has the highest
  std::vector<std::string> merges;
  std::string precompiled_charsmap;  // bytes, of t5
  std::string name;                  // general.name: the rules for Phi-3's tokens hang on it
  std::int64_t bos_id = -1, eos_id = -1, unknown_id = -1, padding_id = -1, separator_id = -1, cls_id = -1;
  std::optional<bool> add_bos, add_eos;  // absent: as the model and the pre-tokenizer's name imply
  std::optional<bool> add_space_prefix, remove_extra_whitespaces;
  std::optional<bool> lowercase, strip_accents;  // of bert
};

// The JSON texts beside a vocabulary that name further tokens; empty: there is no such file.
struct FilesBeside {
  std::string config, special_tokens_map,
      added_tokens;    // tokenizer_config.json, special_tokens_map.json, added_tokens.json
  std::string folder;  // for messages
};

// Whether texts get a BOS and an EOS token; absent: as models of the kind do (BPE a BOS, Unigram an EOS).
struct SentencePieceEnds {
  std::optional<bool> add_bos, add_eos;
};

struct EncodeOptions {
  bool add_special_tokens = true;  // BOS/EOS as the file's post-processor says
  bool special_tokens_in_text =
      true;              // "<|im_end|>" written in the text becomes the special token (Hugging Face's default)
  bool guarded = false;  // the text has guards, see guard_special_tokens(); they become nothing
};

// Immutable after construction; encode() and decode() may be called from several threads at once.
class Tokenizer {
 public:
  // All throw Error(kData) with `source` (the file's name) in the message. Tokens that files beside a vocabulary name get the
  // ids that transformers gives them.
  static Tokenizer from_json(std::string_view tokenizer_json, const std::string& source,
                             const FilesBeside& beside = {});
  // The files beside may name no token that is not there already; the same goes for the two lists below.
  static Tokenizer from_gguf(const GgufVocabulary& vocabulary, const std::string& source,
                             const FilesBeside& beside = {});
  static Tokenizer from_sentencepiece(std::string_view model, const std::string& source, const SentencePieceEnds& ends,
                                      const FilesBeside& beside = {});
  // Lines "base64 rank".
  static Tokenizer from_tiktoken(std::string_view list, const std::string& source, const FilesBeside& beside = {});
  static Tokenizer from_tekken(std::string_view tekken_json, const std::string& source, const FilesBeside& beside = {});
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // text is UTF-8; throws Error(kData) on invalid UTF-8. Appends to ids.
  void encode(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& ids) const;
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Foreign text that goes into a template: a noncharacter (U+FDD0) inside every special token written in it, so that
  // encode() with `guarded` takes the template's special tokens as such and the text's as text.
  std::string guard_special_tokens(std::string_view text) const;
  // The text as encode() with `guarded` reads it.
  static std::string without_guards(std::string_view text);
  // For each of the ids that `text` (without guards) became the byte where it ends in it; a token begins where the one before it ends. Nothing
  // where the tokens do not spell the text: a normalizer has changed it, or a character has no token.
  std::optional<std::vector<std::size_t>> token_ends(std::string_view text, std::span<const TokenId> ids) const;
  // An id that no token has adds nothing, whatever it is: models have more rows than their vocabularies have tokens, and draw them now and then.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  // What a token adds to a text before invalid UTF-8 is replaced; empty where no token has the id.
  std::string_view token_bytes(TokenId id) const;
  // One that decode() leaves out on demand.
  bool is_special(TokenId id) const;

  // Highest id + 1, added tokens included.
  std::int64_t vocab_size() const;
  // The same without what the files beside the vocabulary name.
  std::int64_t own_size() const;
  // Named tokens as the files beside the vocabulary give them to a chat template: names such as pad_token and their texts.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const;
  // sha256 in hex of what determines the ids (the JSON text, or a canonical form of the GGUF vocabulary).
  const std::string& sha256() const;
  // The same of what the file means, however it is written: equal for two files that give every text the same ids (but for BOS and
  // EOS around it) and every id the same token.
  const std::string& rules_sha256() const;
  // Id of a token by its exact text, -1 if there is none.
  TokenId token_to_id(std::string_view token) const;

  struct Model;  // src/text/tokenizer_model.h

 private:
  explicit Tokenizer(std::unique_ptr<Model> model);
  std::unique_ptr<Model> model_;
};

}  // namespace magister
