// A tokenizer from a GGUF vocabulary: the pattern is not in the file, only its name.
#include <mutex>
#include <set>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/core/utf8.h"
#include "text/tokenizer_model.h"

namespace magister {
namespace {

// What a name in tokenizer.ggml.pre stands for: how texts are cut, and what the file means where it is silent.
struct PreType {
  enum class Cut { kGpt2, kDigitsGpt2, kLlama3, kQwen2, kDefault };
  std::string_view name;
  Cut cut;
  bool ignore_merges = false;  // a whole piece that is a token is that token
  bool add_bos = false;        // unless tokenizer.ggml.add_bos_token says otherwise
};

// Source: llama.cpp's table of pre-tokenizers (src/llama-vocab.cpp, the version in llama-cpp-python 0.3.36). No name of these
// asks for an EOS token by itself. tests/text/gguf_vocab_test.py compares ids with llama.cpp's for the cuts.
constexpr PreType kPreTypes[] = {
    {"default", PreType::Cut::kDefault},
    {"gpt-2", PreType::Cut::kGpt2},
    {"phi-2", PreType::Cut::kGpt2},
    {"mpt", PreType::Cut::kGpt2},
    {"olmo", PreType::Cut::kGpt2},
    {"modern-bert", PreType::Cut::kGpt2},
    {"smollm", PreType::Cut::kDigitsGpt2},
    {"starcoder", PreType::Cut::kDigitsGpt2},
    {"refact", PreType::Cut::kDigitsGpt2},
    {"command-r", PreType::Cut::kDigitsGpt2},
    {"codeshell", PreType::Cut::kDigitsGpt2},
    {"exaone", PreType::Cut::kDigitsGpt2},
    {"minerva-7b", PreType::Cut::kDigitsGpt2},
    {"llama-bpe", PreType::Cut::kLlama3, true, true},
    {"llama3", PreType::Cut::kLlama3, true, true},
    {"llama-v3", PreType::Cut::kLlama3, true, true},
    {"falcon3", PreType::Cut::kLlama3, true, true},
    {"falcon-h1", PreType::Cut::kLlama3, true, true},
    {"pixtral", PreType::Cut::kLlama3, true, true},
    {"lfm2", PreType::Cut::kLlama3, true, true},
    {"dbrx", PreType::Cut::kLlama3},
    {"smaug-bpe", PreType::Cut::kLlama3},
    {"qwen2", PreType::Cut::kQwen2},
    {"deepseek-r1-qwen", PreType::Cut::kQwen2},
    {"stablelm2", PreType::Cut::kQwen2},
};

const PreType& pre_type_of(const std::string& name, const std::string& source) {
  std::string known;
  for (const PreType& type : kPreTypes) {
    if (type.name == name) return type;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", type.name);
  }
  fail(ExitCode::kData,
       "{}: its pre-tokenizer \"{}\" is not known here (texts could not be split as the model was trained; known "
       "are {}); use a file with one of them, or the model's folder with its tokenizer.json",
       source, printable(name), known);
}

std::unique_ptr<PreTokenizer> pre_tokenizer_for(PreType::Cut cut, const std::string& source) {
  const auto split = [&](const char* pattern) { return make_split(pattern, SplitBehavior::kIsolated, false, source); };
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  switch (cut) {
    case PreType::Cut::kGpt2:
      return split(kGpt2Pattern);
    case PreType::Cut::kLlama3:
      return split(kLlama3Pattern);
    case PreType::Cut::kQwen2:
      return split(kQwen2Pattern);
    case PreType::Cut::kDigitsGpt2:
      steps.push_back(make_digits(true));
      steps.push_back(split(kGpt2Pattern));
      break;
    case PreType::Cut::kDefault:
      steps.push_back(split(R"([\p{P}\$\+<=>\^~\|]+)"));
      steps.push_back(split(kGpt2Pattern));
      steps.push_back(split(R"(\p{N}+)"));
      steps.push_back(split(R"([0-9][0-9][0-9])"));
      break;
  }
  return make_sequence(std::move(steps));
}

// Said once a file, however often it is opened.
void warn_of_missing_pre(const std::string& source) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  if (!warned.insert(source).second) return;
  log_warning(
      "{}: NO PRE-TOKENIZER IS NAMED in its metadata (tokenizer.ggml.pre is missing, as old converters left it). Texts "
      "are "
      "split by llama.cpp's \"default\" rule, which is probably not the one that the model was trained with: token "
      "ids, "
      "and with them all results, may be wrong; convert the model to GGUF again, or use its folder with tokenizer.json",
      source);
}

std::string digest(const GgufVocabulary& vocabulary, bool add_bos, bool add_eos) {
  Sha256 hash;
  hash.update(vocabulary.model + "\n" + vocabulary.pre + "\n");
  hash.update(fmt::format("{} {} {} {} {} {}\n", vocabulary.bos_id, vocabulary.eos_id, vocabulary.unknown_id,
                          vocabulary.padding_id, add_bos, add_eos));
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    hash.update(fmt::format("{} ", i < vocabulary.token_types.size() ? vocabulary.token_types[i] : 1));
    hash.update(vocabulary.tokens[i]).update("\n");
  }
  for (const std::string& merge : vocabulary.merges) hash.update(merge).update("\n");
  return hash.hex();
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

}  // namespace

Tokenizer Tokenizer::from_gguf(const GgufVocabulary& vocabulary, const std::string& path) {
  const std::string source = printable(path);
  constexpr std::int32_t kControl = 3, kUserDefined = 4;
  MAGISTER_CHECK(vocabulary.model == "gpt2", ExitCode::kData,
                 "{}: its tokenizer model is \"{}\" (only byte-level BPE, \"gpt2\", "
                 "is read here); use a model with such a vocabulary",
                 source, printable(vocabulary.model));
  MAGISTER_CHECK(vocabulary.token_types.empty() || vocabulary.token_types.size() == vocabulary.tokens.size(),
                 ExitCode::kData, "{}: {} tokens, but {} token types (the vocabulary is damaged); fetch the file again",
                 source, vocabulary.tokens.size(), vocabulary.token_types.size());
  auto model = std::make_unique<Model>();
  model->source = source;
  if (vocabulary.pre.empty()) warn_of_missing_pre(source);
  const PreType& pre = pre_type_of(vocabulary.pre.empty() ? "default" : vocabulary.pre, source);
  const bool add_bos = vocabulary.add_bos.value_or(pre.add_bos), add_eos = vocabulary.add_eos.value_or(false);
  model->pre_tokenizer = pre_tokenizer_for(pre.cut, source);
  std::unordered_map<std::string, TokenId> vocab;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& text = vocabulary.tokens[i];
    const auto id = static_cast<TokenId>(i);
    MAGISTER_CHECK(find_invalid_utf8(text) == text.size(), ExitCode::kData,
                   "{}: token {} is not valid UTF-8 (the vocabulary is "
                   "damaged); fetch the file again",
                   source, i);
    MAGISTER_CHECK(vocab.emplace(text, id).second, ExitCode::kData,
                   "{}: token \"{}\" is there twice, as {} and {} (which one is "
                   "meant?); fetch the file again",
                   source, printable(text), vocab.at(text), i);
    const std::int32_t type = vocabulary.token_types.empty() ? 1 : vocabulary.token_types[i];
    if (type != kControl && type != kUserDefined) continue;
    AddedToken token;
    token.id = id;
    token.content = text;
    token.special = type == kControl;
    model->added.push_back(std::move(token));
  }
  std::vector<std::pair<std::string, std::string>> merges;
  for (const std::string& merge : vocabulary.merges) merges.push_back(parse_merge(merge, source));
  model->bpe = std::make_unique<Bpe>(std::move(vocab), merges, pre.ignore_merges, source);
  model->sha256 = digest(vocabulary, add_bos, add_eos);
  model->finish();
  const auto token_for = [&](std::int64_t id, const char* what) {
    MAGISTER_CHECK(id >= 0 && id < static_cast<std::int64_t>(vocabulary.tokens.size()), ExitCode::kData,
                   "{}: {} is asked for, but "
                   "its id is {} of {} tokens (the vocabulary is damaged); fetch the file again",
                   source, what, id, vocabulary.tokens.size());
    return static_cast<TokenId>(id);
  };
  if (add_bos) model->prefix.push_back(token_for(vocabulary.bos_id, "a BOS token"));
  if (add_eos) model->suffix.push_back(token_for(vocabulary.eos_id, "an EOS token"));
  return Tokenizer(std::move(model));
}

}  // namespace magister
