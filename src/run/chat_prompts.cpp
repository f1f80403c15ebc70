// Where a model keeps its chat template, and the way from messages to tokens; see chat_prompts.h.
#include "magister/run/chat_prompts.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/io/tensor_file.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
constexpr std::uintmax_t kMaxTemplateBytes = 16 << 20;

std::optional<std::string> read_text(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  MAGISTER_CHECK(fs::file_size(path, error) <= kMaxTemplateBytes, ExitCode::kData, "{}: has more than {} bytes (no chat template "
                 "has); name another file", printable(path.string()), kMaxTemplateBytes);
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A token of tokenizer_config.json: a text, or an object with its content.
std::string token_text(const ordered_json& config, const char* name) {
  if (!config.is_object() || !config.contains(name)) return "";
  const ordered_json& token = config.at(name);
  if (token.is_string()) return token.get<std::string>();
  return token.is_object() && token.contains("content") && token.at("content").is_string() ? token.at("content").get<std::string>() : "";
}

struct Source {
  std::string text, name, bos_token, eos_token;
};

// Metadata of a GGUF file: a token id's text.
std::string gguf_token(const Metadata& metadata, const char* name, const Tokenizer& tokenizer) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) return "";
  const auto* id = std::get_if<std::int64_t>(&found->second);
  if (id == nullptr || *id < 0 || *id >= tokenizer.vocab_size()) return "";
  const TokenId token = static_cast<TokenId>(*id);
  return tokenizer.decode(std::span(&token, 1));
}

std::optional<Source> find_template(const std::string& model_path, const Tokenizer* tokenizer) {
  Source source;
  if (fs::is_directory(model_path)) {
    const fs::path folder(model_path);
    const auto config_text = read_text(folder / "tokenizer_config.json");
    const ordered_json config = config_text ? ordered_json::parse(*config_text, nullptr, false) : ordered_json();
    source.bos_token = token_text(config, "bos_token");
    source.eos_token = token_text(config, "eos_token");
    if (auto text = read_text(folder / "chat_template.jinja")) {
      source.text = std::move(*text);
      source.name = (folder / "chat_template.jinja").string();
      return source;
    }
    if (!config_text) return std::nullopt;
    source.name = (folder / "tokenizer_config.json").string();
    auto text = chat_template_from_config(*config_text, source.name);
    if (!text) return std::nullopt;
    source.text = std::move(*text);
    return source;
  }
  const auto file = TensorFile::open(model_path);
  const Metadata& metadata = file->metadata();
  const auto found = metadata.find("tokenizer.chat_template");
  const auto* text = found == metadata.end() ? nullptr : std::get_if<std::string>(&found->second);
  if (text == nullptr) return std::nullopt;
  source.text = *text;
  source.name = model_path + ": tokenizer.chat_template";
  if (tokenizer != nullptr) {
    source.bos_token = gguf_token(metadata, "tokenizer.ggml.bos_token_id", *tokenizer);
    source.eos_token = gguf_token(metadata, "tokenizer.ggml.eos_token_id", *tokenizer);
  }
  return source;
}

// Every text inside the messages with its special tokens guarded; roles are the template's business and stay.
ordered_json guarded(const ordered_json& value, const Tokenizer& tokenizer) {
  if (value.is_string()) return tokenizer.guard_special_tokens(value.get<std::string>());
  ordered_json copy = value;
  if (value.is_array()) {
    for (ordered_json& entry : copy) entry = guarded(entry, tokenizer);
  } else if (value.is_object()) {
    for (auto& [name, entry] : copy.items()) {
      if (name != "role") entry = guarded(entry, tokenizer);
    }
  }
  return copy;
}

void check_messages(const ordered_json& messages, const std::string& where) {
  MAGISTER_CHECK(messages.is_array(), ExitCode::kData, "{}: the messages are no list (a chat is a list of objects with role and "
                 "content); mend the line", where);
  for (const ordered_json& message : messages) {
    MAGISTER_CHECK(message.is_object() && message.contains("role") && message.at("role").is_string(), ExitCode::kData,
                   "{}: a message has no role (a chat is a list of objects with role and content); mend the line", where);
  }
}

}  // namespace

bool ChatPrompts::has_template(const std::string& model_path) { return find_template(model_path, nullptr).has_value(); }

ChatPrompts::ChatPrompts(const std::string& model_path, const std::string& override_path, const Tokenizer& tokenizer,
                         bool special_tokens_in_messages)
    : tokenizer_(tokenizer), trusted_(special_tokens_in_messages) {
  std::optional<Source> source = find_template(model_path, &tokenizer);
  if (override_path.find("{%") != std::string::npos || override_path.find("{{") != std::string::npos) {
    if (!source) source.emplace();
    source->text = override_path;
    source->name = "model.chat_template";
  } else if (!override_path.empty()) {
    auto text = read_text(override_path);
    MAGISTER_CHECK(text.has_value(), ExitCode::kInputOutput, "{}: there is no such file (model.chat_template names it); check the "
                   "path", printable(override_path));
    if (!source) source.emplace();
    source->text = std::move(*text);
    source->name = override_path;
  }
  MAGISTER_CHECK(source.has_value(), ExitCode::kConfig, "{}: the model has no chat template (chats cannot be written as it was "
                 "trained on them); use a chat model, or name a template with model.chat_template", printable(model_path));
  template_ = ChatTemplate::parse(source->text, source->name);
  sha256_ = sha256_hex(source->text);
  bos_token_ = source->bos_token;
  eos_token_ = source->eos_token;
}

ordered_json ChatPrompts::safe(const ordered_json& messages) const { return trusted_ ? messages : guarded(messages, tokenizer_); }

RenderedChat ChatPrompts::render(const ordered_json& guarded_messages, bool answer_follows) const {
  return template_->render({{"messages", guarded_messages}, {"add_generation_prompt", answer_follows},
                            {"bos_token", bos_token_}, {"eos_token", eos_token_}});
}

// The template writes BOS where the model wants one.
std::vector<TokenId> ChatPrompts::tokens(const std::string& text) const {
  return tokenizer_.encode(text, {.add_special_tokens = false, .special_tokens_in_text = true, .guarded = true});
}

std::vector<TokenId> ChatPrompts::encode(const ordered_json& messages, bool answer_follows, const std::string& where) const {
  check_messages(messages, where);
  try {
    return tokens(render(safe(messages), answer_follows).text);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where, error.what());
  }
}

// The answer of message i stands between the text before it, with the prompt for an answer, and the text that ends with it.
std::vector<TextSpan> ChatPrompts::answers_by_prefix(const ordered_json& guarded_messages, const std::string& whole) const {
  std::vector<TextSpan> spans;
  ordered_json so_far = ordered_json::array();
  for (std::size_t i = 0; i < guarded_messages.size(); ++i) {
    const bool answer = guarded_messages[i].at("role") == "assistant";
    const std::string before = answer ? render(so_far, true).text : "";
    so_far.push_back(guarded_messages[i]);
    if (!answer) continue;
    const std::string after = render(so_far, false).text;
    MAGISTER_CHECK(whole.starts_with(before) && whole.starts_with(after) && after.starts_with(before), ExitCode::kData,
                   "the chat template writes message {} differently when others follow, or its prompt for an answer is not how an answer "
                   "begins (which tokens are the assistant's cannot be told); use `score: all`, or a template with generation blocks", i + 1);
    std::size_t end = after.size();
    while (end > before.size() && std::isspace(static_cast<unsigned char>(after[end - 1])) != 0) --end;
    spans.push_back({before.size(), end});
  }
  return spans;
}

ChatPrompts::MarkedTokens ChatPrompts::encode_marked(const ordered_json& messages, const std::string& where) const {
  check_messages(messages, where);
  try {
    const ordered_json guarded_messages = safe(messages);
    const RenderedChat chat = render(guarded_messages, false);
    const std::vector<TextSpan> spans = chat.generated.empty() ? answers_by_prefix(guarded_messages, chat.text) : chat.generated;
    MAGISTER_CHECK(!spans.empty(), ExitCode::kData, "no message is the assistant's (nothing would be scored); remove the record or use `score: all`");
    MarkedTokens marked{tokens(chat.text), {}};
    marked.assistant.assign(marked.ids.size(), 0);
    // A place in the text is the number of tokens that the text up to it and the whole have in common.
    const auto place = [&](std::size_t bytes) {
      const std::vector<TokenId> prefix = tokens(chat.text.substr(0, bytes));
      return std::mismatch(prefix.begin(), prefix.end(), marked.ids.begin(), marked.ids.end()).first - prefix.begin();
    };
    for (const TextSpan& span : spans) {
      const auto begin = place(span.begin), end = std::max(begin, place(span.end));
      std::fill(marked.assistant.begin() + begin, marked.assistant.begin() + end, std::uint8_t{1});
    }
    return marked;
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where, error.what());
  }
}

ordered_json record_field(const std::string& line, const std::string& field, const std::string& where) {
  ordered_json record = ordered_json::parse(line);  // checked by the data set already
  if (const auto found = record.find(field); found != record.end()) return *found;
  std::vector<std::string> names;
  for (const auto& [name, value] : record.items()) names.push_back(name);
  const std::string nearest = nearest_name(field, names);
  fail(ExitCode::kData, "{}: there is no field \"{}\" (the experiment asks for it; the record has {}); {}mend the line or the "
       "experiment", where, printable(field), printable(fmt::format("{}", fmt::join(names, ", ")), 200),
       nearest.empty() ? "" : "did you mean \"" + printable(nearest) + "\"? else ");
}

}  // namespace magister
