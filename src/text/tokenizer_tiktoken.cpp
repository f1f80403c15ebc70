// Reads a tokenizer from the files of original checkpoints: tiktoken's list of tokens in base64 with their ranks (Llama
// 3, Qwen, and OpenAI's own), and Mistral's tekken.json. A tiktoken list does not say how a text is split; its length
// tells whose list it is.
// Source: openai/tiktoken load.py and tiktoken_ext/openai_public.py; mistral_common tokens/tokenizers/tekken.py.
#include <algorithm>
#include <charconv>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "text/base64.h"
#include "text/json_node.h"
#include "text/named_tokens.h"
#include "text/score_bpe.h"
#include "text/tokenizer_model.h"

namespace magister {
namespace {

constexpr const char* kCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr const char* kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

void add_special(Tokenizer::Model& model, TokenId id, std::string text) {
  AddedToken token;
  token.id = id;
  token.content = std::move(text);
  token.special = true;
  model.added.push_back(std::move(token));
}

void add_llama_3(Tokenizer::Model& model) {
  constexpr const char* kNamed[] = {"begin_of_text",
                                    "end_of_text",
                                    "reserved_special_token_0",
                                    "reserved_special_token_1",
                                    "finetune_right_pad_id",
                                    "reserved_special_token_2",
                                    "start_header_id",
                                    "end_header_id",
                                    "eom_id",
                                    "eot_id",
                                    "python_tag"};
  for (TokenId i = 0; i < 256; ++i) {
    const std::string name = i < 11 ? kNamed[i] : fmt::format("reserved_special_token_{}", i - 8);
    add_special(model, 128000 + i, "<|" + name + "|>");
  }
  model.prefix = {128000};
}

void add_qwen(Tokenizer::Model& model) {
  for (const char* name : {"endoftext", "im_start", "im_end"})
    add_special(model, static_cast<TokenId>(151643 + model.added.size()), fmt::format("<|{}|>", name));
  for (TokenId i = 0; i < 205; ++i) add_special(model, 151646 + i, fmt::format("<|extra_{}|>", i));
  model.normalizer = make_unicode_normalizer(UnicodeForm::kNfc);
}

void add_cl100k(Tokenizer::Model& model) {
  add_special(model, 100257, "<|endoftext|>");
  add_special(model, 100258, "<|fim_prefix|>");
  add_special(model, 100259, "<|fim_middle|>");
  add_special(model, 100260, "<|fim_suffix|>");
  add_special(model, 100276, "<|endofprompt|>");
}

void add_o200k(Tokenizer::Model& model) {
  add_special(model, 199999, "<|endoftext|>");
  add_special(model, 200018, "<|endofprompt|>");
}

// A known tiktoken list, recognised by its number of tokens.
struct KnownList {
  std::size_t tokens;
  const char* pattern;
  void (*add)(Tokenizer::Model&);
};
const KnownList kKnown[] = {{128000, kLlama3Pattern, add_llama_3},
                            {151643, kQwen2Pattern, add_qwen},
                            {100256, kCl100kPattern, add_cl100k},
                            {199998, kO200kPattern, add_o200k}};

void build_vocabulary(std::vector<RankedToken> tokens, TokenId shift, const char* pattern, Tokenizer::Model& model) {
  for (RankedToken& token : tokens) {
    token.id += shift;
    MAGISTER_CHECK(model.vocab.emplace(token.text, token.id).second, ExitCode::kData,
                   "{}: token {} has the bytes of another one (their text would have two ids); fetch the file again",
                   model.source, token.id - shift);
  }
  for (int byte = 0; byte < 256; ++byte) {
    MAGISTER_CHECK(model.vocab.contains(std::string(1, static_cast<char>(byte))), ExitCode::kData,
                   "{}: has no token for the byte {} (not every text could be encoded); fetch the file again",
                   model.source, byte);
  }
  model.pre_tokenizer =
      make_split(pattern, SplitBehavior::kIsolated, false, model.source, false, Pattern::Syntax::kRust);
  ScoreBpe::Rules rules;
  rules.reads_bytes = rules.whole_first = true;
  model.words = std::make_unique<ScoreBpe>(tokens, std::move(rules));
  model.decoding = Tokenizer::Model::Decoding::kBytes;
  model.tokens_are_bytes = true;
}

std::vector<RankedToken> read_list(std::string_view text, const std::string& source) {
  std::vector<RankedToken> tokens;
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    const auto bytes = decode_base64(line.substr(0, space));
    std::uint32_t rank = 0;
    const bool has_rank = space != std::string_view::npos;
    const char* const first = line.data() + (has_rank ? space + 1 : 0);
    const auto parsed = std::from_chars(first, line.data() + line.size(), rank);
    MAGISTER_CHECK(
        has_rank && bytes && !bytes->empty() && parsed.ec == std::errc() && parsed.ptr == line.data() + line.size(),
        ExitCode::kData,
        "{}:{}: \"{}\" is not a token in base64 and its rank (the list is damaged); fetch the file again", source,
        number, printable(line, 60));
    MAGISTER_CHECK(rank == tokens.size(), ExitCode::kData,
                   "{}:{}: its rank is {} where {} follows (ranks are the tokens' ids); fetch the file again", source,
                   number, rank, tokens.size());
    tokens.push_back({*bytes, static_cast<TokenId>(rank), rank});
  }
  return tokens;
}

// The special tokens of tekken files up to version 7, which do not list them.
constexpr const char* kTekkenSpecial[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

void add_tekken_special(const JsonNode& root, std::size_t count, Tokenizer::Model& model) {
  std::vector<std::string> names(count);
  if (root.has("special_tokens")) {
    for (const JsonNode& token : root.at("special_tokens").list()) {
      std::string& name = names[token.at("rank").size(count - 1)];
      if (!name.empty())
        token.at("rank").refuse("is that of another token too (an id has one token); fetch the file again");
      name = token.at("token_str").text();
    }
  } else {
    std::copy_n(kTekkenSpecial, std::min(count, std::size(kTekkenSpecial)), names.begin());
  }
  for (std::size_t i = 0; i < count; ++i) {
    add_special(model, static_cast<TokenId>(i), names[i].empty() ? fmt::format("<SPECIAL_{}>", i) : names[i]);
    if (names[i] == "<s>") model.prefix = {static_cast<TokenId>(i)};
  }
}

}  // namespace

Tokenizer Tokenizer::from_tiktoken(std::string_view text, const std::string& path,
                                   const TokenizerConfigFiles& config_files) {
  auto model = std::make_unique<Model>();
  model->source = printable(path);
  std::vector<RankedToken> tokens = read_list(text, model->source);
  for (const KnownList& known : kKnown) {
    if (known.tokens != tokens.size()) continue;
    build_vocabulary(std::move(tokens), 0, known.pattern, *model);
    known.add(*model);
    take_named_tokens(config_files, *model);
    model->sha256 = sha256_hex(text);
    model->finish();
    return Tokenizer(std::move(model));
  }
  fail(ExitCode::kData,
       "{}: a list of {} tokens (128000, Llama 3, 151643, Qwen, 100256, cl100k, and 199998, o200k, are known; the list "
       "does not say how texts are cut); use the model's tokenizer.json",
       model->source, tokens.size());
}

Tokenizer Tokenizer::from_tekken(std::string_view text, const std::string& path,
                                 const TokenizerConfigFiles& config_files) {
  auto model = std::make_unique<Model>();
  model->source = printable(path);
  const nlohmann::json content = parse_tokenizer_file(text, model->source);
  const JsonNode root(content, "", model->source);
  const JsonNode config = root.at("config");
  constexpr std::size_t kMost = 1u << 24, kMostSpecial = 1u << 16;
  const std::size_t total = config.at("default_vocab_size").size(kMost);
  const std::size_t special = config.at("default_num_special_tokens").size(kMostSpecial);
  const std::vector<JsonNode> entries = root.at("vocab").list();
  if (special >= total || special == 0 || total - special > entries.size())
    config.refuse("names {} tokens, {} of them special, with {} in the list (they do not add up); fetch the file again",
                  total, special, entries.size());
  std::vector<RankedToken> tokens;
  for (std::size_t i = 0; i < total - special; ++i) {
    const auto bytes = decode_base64(entries[i].at("token_bytes").text());
    if (!bytes || bytes->empty())
      entries[i].at("token_bytes").refuse("is not base64 (the token's bytes are unknown); fetch the file again");
    if (entries[i].at("rank").size(kMost) != i)
      entries[i].at("rank").refuse("is not {} (tokens follow each other); fetch the file again", i);
    tokens.push_back({*bytes, static_cast<TokenId>(i), static_cast<std::uint32_t>(i)});
  }
  build_vocabulary(std::move(tokens), static_cast<TokenId>(special), config.at("pattern").text().c_str(), *model);
  add_tekken_special(root, special, *model);
  take_named_tokens(config_files, *model);
  model->sha256 = sha256_hex(text);
  model->finish();
  return Tokenizer(std::move(model));
}

}  // namespace magister
