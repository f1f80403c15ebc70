// Reads a tokenizer from a GGUF vocabulary: model "gpt2" and "gemma4" (BPE by merges), "llama" (BPE by scores), "t5"
// (Unigram), "bert" (WordPiece).
// Source: llama.cpp src/llama-vocab.cpp (the version in llama-cpp-python 0.3.36): the meaning of each model and of
// absent keys.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/core/utf8.h"
#include "magister/text/gguf_ends.h"
#include "text/bpe.h"
#include "text/gguf_pre.h"
#include "text/named_tokens.h"
#include "text/score_bpe.h"
#include "text/tokenizer_model.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace magister {
namespace {

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;
constexpr const char* kVisibleSpace = "\xE2\x96\x81";

// Logs the warning once per file, however often the file is opened.
void warn_of_missing_pre(const std::string& source) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  if (!warned.insert(source).second) return;
  log_warning(
      "{}: NO PRE-TOKENIZER IS NAMED in its metadata (tokenizer.ggml.pre is missing, as old converters left it). Texts "
      "are split by llama.cpp's \"default\" rule, which is probably not the one that the model was trained with: token "
      "ids, and with them all results, may be wrong; convert the model to GGUF again, or use its folder with "
      "tokenizer.json",
      source);
}

// A merge is "left right"; the texts themselves hold no space.
std::pair<std::string, std::string> parse_merge(const std::string& merge, const std::string& source) {
  const std::size_t space = merge.find(' ', 1);
  MAGISTER_CHECK(space != std::string::npos && space + 1 < merge.size(), ExitCode::kData,
                 "{}: merge \"{}\" is not a pair (two texts "
                 "with a space between are expected); fetch the file again",
                 source, printable(merge));
  return {merge.substr(0, space), merge.substr(space + 1)};
}

// Reads one vocabulary into `model`. The read_...() functions also set the default special tokens of their kind.
class GgufReader {
 public:
  GgufReader(const GgufVocabulary& vocabulary, const std::string& path, Tokenizer::Model& model)
      : file_(vocabulary), source_(printable(path)), model_(model) {}

  void run() {
    model_.source = source_;
    read_tokens();
    if (file_.model == "gpt2" || file_.model == "gemma4") {
      read_merged();
    } else if (file_.model == "llama") {
      read_scored();
    } else if (file_.model == "t5") {
      read_unigram();
    } else if (file_.model == "bert") {
      read_bert();
    } else {
      fail(
          ExitCode::kData,
          "{}: its tokenizer model is \"{}\" (gpt2, gemma4, llama, t5 and bert are read here); use a model with such a "
          "vocabulary",
          source_, printable(file_.model));
    }
    set_ends();
    model_.sha256 = digest();
  }

 private:
  std::int32_t type_of(std::size_t id) const { return file_.token_types.empty() ? kNormal : file_.token_types[id]; }
  float score_of(std::size_t id) const { return file_.scores.empty() ? 0.0f : static_cast<float>(file_.scores[id]); }

  void check_lengths() const {
    MAGISTER_CHECK(file_.token_types.empty() || file_.token_types.size() == file_.tokens.size(), ExitCode::kData,
                   "{}: {} tokens, but {} token types (the vocabulary is damaged); fetch the file again", source_,
                   file_.tokens.size(), file_.token_types.size());
    MAGISTER_CHECK(file_.scores.empty() || file_.scores.size() == file_.tokens.size(), ExitCode::kData,
                   "{}: {} tokens, but {} scores (the vocabulary is damaged); fetch the file again", source_,
                   file_.tokens.size(), file_.scores.size());
    for (const double score : file_.scores) {
      MAGISTER_CHECK(std::isfinite(score), ExitCode::kData,
                     "{}: a token's score is {} (the best token would be unknown); fetch the file again", source_,
                     score);
    }
  }

  void read_tokens() {
    check_lengths();
    for (std::size_t i = 0; i < file_.tokens.size(); ++i) {
      std::string text = file_.tokens[i];
      if (text.empty()) text = fmt::format("[EMPTY_{}]", i);
      const auto id = static_cast<TokenId>(i);
      MAGISTER_CHECK(find_invalid_utf8(text) == text.size(), ExitCode::kData,
                     "{}: token {} is not valid UTF-8 (the vocabulary is "
                     "damaged); fetch the file again",
                     source_, i);
      MAGISTER_CHECK(model_.vocab.emplace(text, id).second, ExitCode::kData,
                     "{}: token \"{}\" is there twice, as {} and {} (it would have two ids); fetch the file again",
                     source_, printable(text), model_.vocab.at(text), i);
      const bool ends = controls_.contains(id);
      if (!ends && type_of(i) != kControl && type_of(i) != kUserDefined && type_of(i) != kUnknown) continue;
      AddedToken token;
      token.id = id;
      token.content = text;
      token.special = ends || type_of(i) != kUserDefined;
      token.literal = true;
      token.rstrip = is_phi_3_ && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
      model_.added.push_back(std::move(token));
    }
  }

  // Phi-3's tokens strip the white space after them. No key says so; like llama.cpp, this goes by the model's name.
  static bool names_phi_3(std::string name) {
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
  }

  std::array<TokenId, 256> byte_ids() const {
    std::array<TokenId, 256> ids{};
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto found = model_.vocab.find(byte_token(static_cast<unsigned char>(byte)));
      ids[byte] = found == model_.vocab.end() ? -1 : found->second;
    }
    return ids;
  }

  void decode_visible_spaces(bool strip_first) {
    std::vector<DecodeStepPtr> steps;
    steps.push_back(make_replace_decoder(kVisibleSpace, " "));
    steps.push_back(make_byte_fallback_decoder());
    steps.push_back(make_fuse_decoder());
    if (strip_first) steps.push_back(make_strip_decoder(" ", 1, 0));
    model_.decoder = make_decoder_sequence(std::move(steps));
  }

  void read_merged() {
    const bool gemma = file_.model == "gemma4";
    if (!gemma && file_.pre.empty()) warn_of_missing_pre(source_);
    const GgufPreType& pre = gguf_pre_type(gemma ? "gemma4" : file_.pre.empty() ? "default" : file_.pre, source_);
    model_.pre_tokenizer = gguf_pre_tokenizer(pre, source_);
    if (pre.nfc) model_.normalizer = make_unicode_normalizer(UnicodeForm::kNfc);
    add_bos_ = pre.add_bos;
    default_bos_ = default_eos_ = 11;
    BpeRules rules;
    rules.ignore_merges = pre.ignore_merges;
    rules.keep_first = true;
    if (pre.cut == "lines") {
      rules.reads_bytes = false;
      rules.newlines_whole = rules.byte_fallback = true;
      model_.normalizer = make_replace(" ", kVisibleSpace);
      decode_visible_spaces(false);
    } else {
      model_.decoding = Tokenizer::Model::Decoding::kBytes;
    }
    std::vector<std::pair<std::string, std::string>> merges;
    merges.reserve(file_.merges.size());
    for (const std::string& merge : file_.merges) merges.push_back(parse_merge(merge, source_));
    model_.words = std::make_unique<Bpe>(model_.vocab, merges, rules, source_);
  }

  // SentencePiece BPE: spaces become U+2581, each text gets one in front (unless add_space_prefix is false), and pairs
  // merge by the score of the token that they make.
  void read_scored() {
    add_bos_ = true;
    default_bos_ = 1;
    default_eos_ = 2;
    const bool prefix = file_.add_space_prefix.value_or(true);
    std::vector<NormalizerPtr> steps;
    if (prefix) steps.push_back(make_prepend(" "));
    steps.push_back(make_replace(" ", kVisibleSpace));
    model_.normalizer = make_normalizer_sequence(std::move(steps));
    std::vector<std::pair<std::string, TokenId>> tokens;
    std::vector<float> scores;
    for (std::size_t i = 0; i < file_.tokens.size(); ++i) {
      if (type_of(i) == kControl || type_of(i) == kUnknown || type_of(i) == kByte) continue;
      tokens.emplace_back(file_.tokens[i], static_cast<TokenId>(i));
      scores.push_back(score_of(i));
    }
    ScoreBpe::Rules rules;
    rules.byte_ids = byte_ids();
    rules.unknown = special(file_.unknown_id, 0, "an unknown token");
    model_.words = std::make_unique<ScoreBpe>(rank_by_score(tokens, scores), rules);
    decode_visible_spaces(prefix);
  }

  void read_unigram() {
    default_eos_ = 1;
    add_eos_ = true;
    SentencePieceRules normal;
    normal.charsmap = file_.precompiled_charsmap;
    normal.add_dummy_prefix = file_.add_space_prefix.value_or(false) || file_.remove_extra_whitespaces.value_or(false);
    normal.remove_extra_whitespaces = file_.remove_extra_whitespaces.value_or(false);
    Unigram::Rules rules;
    rules.unknown = special(file_.unknown_id, 2, "an unknown token");
    rules.look_up_fused = false;
    std::vector<UnigramToken> tokens;
    double lowest = 0;
    bool any = false;
    for (std::size_t i = 0; i < file_.tokens.size(); ++i) {
      const std::int32_t type = type_of(i);
      if (type != kNormal && type != kUserDefined && type != kUnused) continue;
      if (type == kNormal) lowest = any ? std::min<double>(lowest, score_of(i)) : score_of(i);
      any = any || type == kNormal;
      tokens.push_back({file_.tokens[i], static_cast<TokenId>(i), type == kUserDefined ? 0.0 : score_of(i)});
      if (type == kUserDefined) normal.user_defined.push_back(file_.tokens[i]);
    }
    rules.unknown_score = static_cast<float>(lowest) - 10.0f;
    model_.normalizer = make_sentencepiece_normalizer(std::move(normal), source_);
    model_.words = std::make_unique<Unigram>(tokens, rules, source_);
    decode_visible_spaces(true);
  }

  void read_bert() {
    add_bos_ = true;
    default_bos_ = 101;
    default_sep_ = 102;
    BertRules normal;
    normal.lowercase = file_.lowercase.value_or(true);
    normal.strip_accents = file_.strip_accents.value_or(normal.lowercase);
    model_.normalizer = make_bert_normalizer(normal);
    std::vector<PreTokenizerPtr> steps;
    steps.push_back(make_bert());
    steps.push_back(make_metaspace(kVisibleSpace, PrependScheme::kAlways, false));
    model_.pre_tokenizer = make_sequence(std::move(steps));
    WordPiece::Rules rules;
    rules.prefix = "";
    rules.max_characters = ~std::size_t{0};
    rules.unknown = special(file_.unknown_id, 100, "an unknown token");
    model_.words = std::make_unique<WordPiece>(model_.vocab, rules);
    decode_visible_spaces(true);
  }

  TokenId special(std::int64_t given, std::int64_t fallback, const char* what) const {
    const std::int64_t id = given >= 0 ? given : fallback;
    MAGISTER_CHECK(
        id >= 0 && id < static_cast<std::int64_t>(file_.tokens.size()), ExitCode::kData,
        "{}: {} is asked for, but its id is {} of {} tokens (the vocabulary is damaged); fetch the file again", source_,
        what, id, file_.tokens.size());
    return static_cast<TokenId>(id);
  }

  void set_ends() {
    add_bos_ = file_.add_bos.value_or(add_bos_);
    add_eos_ = file_.add_eos.value_or(add_eos_);
    if (file_.model == "gemma4") add_bos_ = true;  // as llama.cpp does, whatever the file says
    const bool bert = file_.model == "bert";       // always has [CLS] and [SEP]
    if (add_bos_ || bert)
      model_.prefix.push_back(
          special(bert && file_.cls_id >= 0 ? file_.cls_id : file_.bos_id, default_bos_, "a BOS token"));
    if (bert) model_.suffix.push_back(special(file_.separator_id, default_sep_, "a separator token"));
    if (add_eos_ && !bert) model_.suffix.push_back(special(file_.eos_id, default_eos_, "an EOS token"));
  }

  // Tokens that llama.cpp treats as control tokens, whatever type the file gives them.
  static std::set<TokenId> controls_by_text(const GgufVocabulary& vocabulary) {
    std::set<TokenId> ids;
    for (const TokenId id : gguf_end_tokens(vocabulary, {})) {
      if (is_gguf_end_text(vocabulary.tokens[static_cast<std::size_t>(id)])) ids.insert(id);
    }
    return ids;
  }

  std::string digest() const {
    Sha256 hash;
    hash.update(file_.model + "\n" + file_.pre + "\n");
    hash.update(fmt::format("{} {} {} {} {} {}\n", file_.bos_id, file_.eos_id, file_.unknown_id, file_.padding_id,
                            add_bos_, add_eos_));
    for (std::size_t i = 0; i < file_.tokens.size(); ++i) {
      hash.update(fmt::format("{} ", type_of(i)));
      hash.update(file_.tokens[i]).update("\n");
    }
    for (const TokenId id : controls_) {
      if (type_of(static_cast<std::size_t>(id)) != kControl) hash.update(fmt::format("control {}\n", id));
    }
    for (const std::string& merge : file_.merges) hash.update(merge).update("\n");
    if (is_phi_3_) hash.update("phi-3\n");
    if (file_.model == "gpt2") return hash.hex();
    for (std::size_t i = 0; i < file_.scores.size(); ++i) hash.update(fmt::format("{} ", score_of(i)));
    const auto flag = [](const std::optional<bool>& value) { return value ? *value ? 1 : 0 : -1; };
    hash.update(fmt::format("{} {} {} {} {} {}\n", flag(file_.add_space_prefix), flag(file_.remove_extra_whitespaces),
                            flag(file_.lowercase), flag(file_.strip_accents), file_.separator_id, file_.cls_id));
    hash.update(file_.precompiled_charsmap);
    return hash.hex();
  }

  const GgufVocabulary& file_;
  const std::string source_;
  Tokenizer::Model& model_;
  const std::set<TokenId> controls_ = controls_by_text(file_);
  const bool is_phi_3_ = names_phi_3(file_.name);
  bool add_bos_ = false, add_eos_ = false;
  std::int64_t default_bos_ = -1, default_eos_ = -1, default_sep_ = -1;
};

}  // namespace

Tokenizer Tokenizer::from_gguf(const GgufVocabulary& vocabulary, const std::string& path,
                               const TokenizerConfigFiles& config_files) {
  auto model = std::make_unique<Model>();
  GgufReader(vocabulary, path, *model).run();
  take_named_tokens(config_files, *model);
  model->finish();
  return Tokenizer(std::move(model));
}

}  // namespace magister
