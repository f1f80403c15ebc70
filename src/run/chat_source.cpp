// Chat templates in folders and GGUF files; see chat_source.h.
#include "run/chat_source.h"

#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/io/whole_file.h"
#include "magister/run/model_source.h"
#include "magister/text/chat_template.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
constexpr std::uintmax_t kMaxSourceBytes = 16 << 20;

// The file's bytes; nothing where no regular file stands there.
std::optional<std::string> template_text(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  return read_whole_file(path, kMaxSourceBytes, "it decides what the model is given");
}

// A token that the metadata of a GGUF file names by its id, as the vocabulary writes it.
std::string gguf_token(const Metadata& metadata, const std::string& name) {
  const auto found = metadata.find(name), listed = metadata.find("tokenizer.ggml.tokens");
  if (found == metadata.end() || listed == metadata.end()) return "";
  const auto* id = std::get_if<std::int64_t>(&found->second);
  const auto* tokens = std::get_if<std::vector<std::string>>(&listed->second);
  const bool there = id != nullptr && tokens != nullptr && *id >= 0 && static_cast<std::uint64_t>(*id) < tokens->size();
  return there ? (*tokens)[static_cast<std::size_t>(*id)] : "";
}

// The tokens are there whether or not the folder has a template: one of the user's own may write them.
ChatSource source_in_folder(const fs::path& folder, const Tokenizer& tokenizer) {
  ChatSource source;
  source.tokens = tokenizer.special_tokens();
  if (auto text = template_text(folder / "chat_template.jinja")) {
    source.text = std::move(*text);
    source.name = (folder / "chat_template.jinja").string();
    source.tool_text = template_text(folder / kToolTemplate).value_or("");
  } else if (const auto config_text = template_text(folder / "tokenizer_config.json")) {
    const std::string name = (folder / "tokenizer_config.json").string();
    if (auto inside = chat_template_from_config(*config_text, name)) {
      source.text = std::move(*inside);
      source.name = name;
      source.tool_text = chat_template_from_config(*config_text, name, "tool_use").value_or("");
    }
  }
  return source;
}

ChatSource source_in_gguf(const std::string& path, const Metadata& metadata) {
  ChatSource source;
  const std::pair<const char*, const char*> named[] = {
      {"bos_token", "bos"},     {"eos_token", "eos"}, {"unk_token", "unknown"}, {"sep_token", "seperator"},
      {"pad_token", "padding"}, {"cls_token", "cls"}, {"mask_token", "mask"}};  // spelt so in the format
  for (const auto& [name, key] : named) {
    const std::string text = gguf_token(metadata, fmt::format("tokenizer.ggml.{}_token_id", key));
    if (!text.empty()) source.tokens.emplace_back(name, text);
  }
  const auto found = metadata.find("tokenizer.chat_template");
  const auto* text = found == metadata.end() ? nullptr : std::get_if<std::string>(&found->second);
  if (text == nullptr) return source;
  source.text = *text;
  source.name = path + ": tokenizer.chat_template";
  const auto tools = metadata.find("tokenizer.chat_template.tool_use");
  if (tools != metadata.end() && std::holds_alternative<std::string>(tools->second))
    source.tool_text = std::get<std::string>(tools->second);
  return source;
}

// model.chat_template: a file, or the template itself (a text with {{ or {%).
void take_override(const std::string& given, ChatSource& source) {
  if (given.empty()) return;
  source.name = "model.chat_template";
  source.text = given;
  source.tool_text.clear();
  if (given.find("{%") != std::string::npos || given.find("{{") != std::string::npos) return;
  auto text = template_text(given);
  MAGISTER_CHECK(text.has_value(), ExitCode::kInputOutput,
                 "{}: there is no such file (model.chat_template names it); check the path", printable(given));
  source.text = std::move(*text);
  source.name = given;
}

}  // namespace

std::string ChatSource::token(const char* name) const {
  for (const auto& [key, value] : tokens) {
    if (key == name) return value;
  }
  return "";
}

std::string ChatSource::sha256() const {
  std::string all = text + '\0' + token("bos_token") + '\0' + token("eos_token");
  if (!tool_text.empty()) all += '\0' + tool_text;
  for (const auto& [name, value] : tokens) {
    const bool written = text.find(name) != std::string::npos || tool_text.find(name) != std::string::npos;
    if (name != "bos_token" && name != "eos_token" && written) all += '\0' + name + '\0' + value;
  }
  return sha256_hex(all);
}

ChatSource find_chat_source(const std::string& model_path, const TensorFile* open_file, const Tokenizer& tokenizer,
                            const std::string& given) {
  ChatSource source;
  if (fs::is_directory(model_path)) {
    source = source_in_folder(model_path, tokenizer);
  } else if (open_file != nullptr) {
    source = source_in_gguf(model_path, open_file->metadata());
  } else if (model_path.ends_with(".gguf")) {
    source = source_in_gguf(model_path, TensorFile::open(model_path)->metadata());
  }
  take_override(given, source);
  return source;
}

}  // namespace magister
