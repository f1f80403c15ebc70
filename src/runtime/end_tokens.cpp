// See end_tokens.h.
#include "magister/runtime/end_tokens.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/whole_file.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/tokenizer_files.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
constexpr std::uintmax_t kMaxConfigBytes = 16 << 20;

// Reads eos_token_id from the file, a number or a list; empty if there is no such file or key.
std::vector<TokenId> ids_in(const fs::path& path, std::int64_t vocab_size) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  const std::string text = read_whole_file(path, kMaxConfigBytes, "it names the tokens that end a text");
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  MAGISTER_CHECK(!object.is_discarded(), ExitCode::kData,
                 "{}: is not JSON (it names the tokens that end a text); fetch the file again",
                 printable(path.string()));
  std::vector<TokenId> ids;
  if (!object.is_object()) return ids;
  // A model of images and texts may name them in its text decoder's config alone.
  const bool nested = (!object.contains("eos_token_id") || object.at("eos_token_id").is_null()) &&
                      object.contains("text_config") && object.at("text_config").is_object();
  const nlohmann::json& holder = nested ? object.at("text_config") : object;
  if (!holder.contains("eos_token_id")) return ids;
  const auto add = [&](const nlohmann::json& one) {
    if (!one.is_number_integer()) return;
    const auto id = one.get<std::int64_t>();
    if (id >= 0 && id < vocab_size) ids.push_back(static_cast<TokenId>(id));
  };
  const nlohmann::json& value = holder.at("eos_token_id");
  if (value.is_array()) {
    for (const nlohmann::json& one : value) add(one);
  } else {
    add(value);
  }
  return ids;
}

// Reads eos_token from the file, a text or an object with its content; empty if there is none.
std::string eos_token_in(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  const auto config =
      nlohmann::json::parse(read_whole_file(path, kMaxConfigBytes, "it names the end of a text"), nullptr, false);
  if (!config.is_object() || !config.contains("eos_token")) return "";
  const nlohmann::json& token = config.at("eos_token");
  const nlohmann::json& text = token.is_object() && token.contains("content") ? token.at("content") : token;
  return text.is_string() ? text.get<std::string>() : "";
}

bool has(std::span<const TokenId> ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

std::string without_spaces_around(const std::string& text) {
  const auto space = [](unsigned char c) { return std::isspace(c) != 0; };
  const auto begin = std::find_if_not(text.begin(), text.end(), space);
  const auto end = std::find_if_not(text.rbegin(), std::make_reverse_iterator(begin), space).base();
  return {begin, end};
}

// The tokens that the template writes after an answer; no value if they cannot be determined.
std::optional<std::vector<TokenId>> tokens_after_answer(const ChatPrompts& chats) {
  const auto answered = [&](const char* answer) {
    return chats.encode_answered({{{{"role", "user"}, {"content", "Is it so?"}}}}, answer,
                                 "a chat to try the template");
  };
  try {
    const std::vector<TokenId> yes = answered("yes"), no = answered("no");
    const auto parting = std::mismatch(yes.rbegin(), yes.rend(), no.rbegin(), no.rend()).first;
    if (parting == yes.rend()) return std::nullopt;  // the template does not write answers
    return std::vector<TokenId>(parting.base(), yes.end());
  } catch (const Error&) {
    return std::nullopt;  // the template is for other chats
  }
}

struct AnswerEnd {
  TurnEnd turn;
  std::vector<TokenId> tokens;
};

std::optional<AnswerEnd> find_turn_end(Checkpoint& checkpoint) {
  const ChatSource* const source = checkpoint.chat_source();
  if (source == nullptr) return std::nullopt;
  auto tokens = tokens_after_answer(ChatPrompts(checkpoint, DatasetConfig{}));
  if (!tokens) return std::nullopt;
  const Tokenizer& tokenizer = checkpoint.tokenizer();
  AnswerEnd found{{.token = -1, .text = "", .template_name = source->name}, *std::move(tokens)};
  const auto special =
      std::find_if(found.tokens.begin(), found.tokens.end(), [&](TokenId id) { return tokenizer.is_special(id); });
  if (special != found.tokens.end()) {
    found.turn.token = *special;
    found.turn.text = tokenizer.decode(std::span(&*special, 1));
  } else {
    found.turn.text = without_spaces_around(tokenizer.decode(found.tokens));
  }
  return found;
}

}  // namespace

std::vector<TokenId> read_end_tokens(const std::string& model_path, const std::string& adapter,
                                     const ModelConfig& config, const TensorFile* file) {
  std::vector<fs::path> paths;
  if (!adapter.empty()) paths.push_back(fs::path(adapter) / "generation_config.json");
  const fs::path model = model_path, folder = model.extension() == ".safetensors" ? model.parent_path() : model;
  for (const char* const name : {"generation_config.json", "config.json"}) paths.push_back(folder / name);
  for (const fs::path& path : paths) {
    std::vector<TokenId> ids = ids_in(path, config.vocab_size);
    if (!ids.empty()) return ids;
  }
  if (file != nullptr && file->metadata().contains("tokenizer.ggml.tokens")) {
    std::vector<TokenId> ids = gguf_end_tokens(file->metadata(), model_path);
    std::erase_if(ids, [&](TokenId id) { return id >= config.vocab_size; });
    return ids;
  }
  return config.eos_token_id >= 0 ? std::vector<TokenId>{static_cast<TokenId>(config.eos_token_id)}
                                  : std::vector<TokenId>{};
}

TokenId text_end_token(Checkpoint& checkpoint) {
  const std::vector<TokenId>& ends = checkpoint.end_tokens();
  const std::string text = eos_token_in(fs::path(checkpoint.tokenizer_path()) / "tokenizer_config.json");
  const TokenId id = text.empty() ? -1 : checkpoint.tokenizer().token_to_id(text);
  if (id >= 0 && id < checkpoint.config().vocab_size) return id;
  return ends.empty() ? -1 : ends.front();
}

std::vector<TokenId> policy_end_tokens(Checkpoint& checkpoint) {
  std::vector<TokenId> ends = checkpoint.end_tokens();
  const TokenId id = text_end_token(checkpoint);
  if (id >= 0 && !has(ends, id)) ends.insert(ends.begin(), id);
  return ends;
}

std::optional<TurnEnd> unended_turn(Checkpoint& checkpoint, std::span<const TokenId> ends) {
  auto found = find_turn_end(checkpoint);
  if (!found || std::any_of(found->tokens.begin(), found->tokens.end(), [&](TokenId id) { return has(ends, id); }))
    return std::nullopt;
  return std::move(found->turn);
}

std::string describe_end_tokens(Checkpoint& checkpoint, std::span<const TokenId> ends) {
  std::string words;
  for (const TokenId id : ends) {
    const bool named = id < checkpoint.tokenizer().vocab_size();
    words += fmt::format("{}{}{}", words.empty() ? "" : ", ", id,
                         named ? " \"" + printable(checkpoint.tokenizer().decode(std::span(&id, 1)), 40) + "\"" : "");
  }
  return words.empty() ? "none" : words;
}

void warn_of_unended_turn(Checkpoint& checkpoint, const std::string& name, std::span<const TokenId> ends,
                          std::span<const std::string> stop_texts) {
  const auto turn = unended_turn(checkpoint, ends);
  if (!turn || turn->text.empty()) return;
  // Stop texts are searched in the text without special tokens.
  const auto stops = [&](const std::string& stop) {
    return turn->token < 0 && turn->text.find(stop) != std::string::npos;
  };
  if (std::any_of(stop_texts.begin(), stop_texts.end(), stops)) return;
  log_warning("{}: {} ends a turn with {}, and what ends a text is {} (texts continue after the end of their turn); {}",
              name, printable(turn->template_name),
              turn->token >= 0 ? fmt::format("token {} \"{}\"", turn->token, printable(turn->text, 40))
                               : fmt::format("\"{}\"", printable(turn->text, 40)),
              describe_end_tokens(checkpoint, ends),
              turn->token >= 0
                  ? "name that token in eos_token_id of the model's generation_config.json, or in the task's "
                    "stop_tokens if it has that key"
                  : "name that text in the task's `stop` if it has that key, or use a tokenizer in which it is one "
                    "token");
}

}  // namespace magister
