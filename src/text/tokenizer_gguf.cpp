// A tokenizer from a GGUF vocabulary: the pattern is not in the file, only its name.
#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/core/utf8.h"
#include "text/tokenizer_model.h"

namespace magister {
namespace {

std::unique_ptr<PreTokenizer> pre_tokenizer_for(const std::string& pre, const std::string& source) {
  const auto split = [&](const char* pattern) { return make_split(pattern, SplitBehavior::kIsolated, false, source); };
  if (pre == "smollm") {
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    steps.push_back(make_digits(true));
    steps.push_back(split(kGpt2Pattern));
    return make_sequence(std::move(steps));
  }
  if (pre == "gpt-2" || pre == "default" || pre.empty()) return split(kGpt2Pattern);
  if (pre == "llama-bpe") return split(kLlama3Pattern);
  if (pre == "qwen2") return split(kQwen2Pattern);
  fail(ExitCode::kData, "{}: its pre-tokenizer \"{}\" is not known here (texts could not be split as the model was trained); "
       "known are smollm, llama-bpe, qwen2, gpt-2 and default", source, printable(pre));
}

std::string digest(const GgufVocabulary& vocabulary) {
  Sha256 hash;
  hash.update(vocabulary.model + "\n" + vocabulary.pre + "\n");
  hash.update(fmt::format("{} {} {} {} {} {}\n", vocabulary.bos_id, vocabulary.eos_id, vocabulary.unknown_id,
                          vocabulary.padding_id, vocabulary.add_bos, vocabulary.add_eos));
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
  MAGISTER_CHECK(space != std::string::npos && space + 1 < merge.size(), ExitCode::kData, "{}: merge \"{}\" is no pair (two texts "
                 "with a space between are expected); fetch the file again", source, printable(merge));
  return {merge.substr(0, space), merge.substr(space + 1)};
}

}  // namespace

Tokenizer Tokenizer::from_gguf(const GgufVocabulary& vocabulary, const std::string& source) {
  constexpr std::int32_t kControl = 3, kUserDefined = 4;
  MAGISTER_CHECK(vocabulary.model == "gpt2", ExitCode::kData, "{}: its tokenizer model is \"{}\" (only byte-level BPE, \"gpt2\", "
                 "is read here); use a model with such a vocabulary", source, printable(vocabulary.model));
  MAGISTER_CHECK(vocabulary.token_types.empty() || vocabulary.token_types.size() == vocabulary.tokens.size(), ExitCode::kData,
                 "{}: {} tokens, but {} token types (the vocabulary is damaged); fetch the file again", source,
                 vocabulary.tokens.size(), vocabulary.token_types.size());
  auto model = std::make_unique<Model>();
  model->source = source;
  model->pre_tokenizer = pre_tokenizer_for(vocabulary.pre, source);
  std::unordered_map<std::string, TokenId> vocab;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& text = vocabulary.tokens[i];
    const auto id = static_cast<TokenId>(i);
    MAGISTER_CHECK(find_invalid_utf8(text) == text.size(), ExitCode::kData, "{}: token {} is no valid UTF-8 (the vocabulary is "
                   "damaged); fetch the file again", source, i);
    MAGISTER_CHECK(vocab.emplace(text, id).second, ExitCode::kData, "{}: token \"{}\" is there twice, as {} and {} (which one is "
                   "meant?); fetch the file again", source, printable(text), vocab.at(text), i);
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
  model->bpe = std::make_unique<Bpe>(std::move(vocab), merges, vocabulary.pre == "llama-bpe", source);
  model->sha256 = digest(vocabulary);
  model->finish();
  const auto token_for = [&](std::int64_t id, const char* what) {
    MAGISTER_CHECK(id >= 0 && id < static_cast<std::int64_t>(vocabulary.tokens.size()), ExitCode::kData, "{}: {} is asked for, but "
                   "its id is {} of {} tokens (the vocabulary is damaged); fetch the file again", source, what, id,
                   vocabulary.tokens.size());
    return static_cast<TokenId>(id);
  };
  if (vocabulary.add_bos) model->prefix.push_back(token_for(vocabulary.bos_id, "a BOS token"));
  if (vocabulary.add_eos) model->suffix.push_back(token_for(vocabulary.eos_id, "an EOS token"));
  return Tokenizer(std::move(model));
}

}  // namespace magister
