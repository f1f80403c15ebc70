// Chat templates in folders and GGUF files; see chat_source.h.
#include "runtime/chat_source.h"

#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/io/whole_file.h"
#include "magister/runtime/tokenizer_files.h"
#include "magister/text/chat_template.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
constexpr std::uintmax_t kMaxSourceBytes = 16 << 20;

// Reads the file; no value if there is no regular file.
std::optional<std::string> template_text(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  return read_whole_file(path, kMaxSourceBytes, "it decides what the model is given");
}

// The token whose id a key of a GGUF file's metadata gives, as the vocabulary spells it.
std::string gguf_token(const Metadata& metadata, const std::string& name) {
  const auto found = metadata.find(name), listed = metadata.find("tokenizer.ggml.tokens");
  if (found == metadata.end() || listed == metadata.end()) return "";
  const auto* id = std::get_if<std::int64_t>(&found->second);
  const auto* tokens = std::get_if<std::vector<std::string>>(&listed->second);
  const bool there = id != nullptr && tokens != nullptr && *id >= 0 && static_cast<std::uint64_t>(*id) < tokens->size();
  return there ? (*tokens)[static_cast<std::size_t>(*id)] : "";
}

struct NamedText {
  std::string text, place;  // empty: there is no template
};

// Reads a folder's template by its name, "default" or another: from a file of its own, or from the list in
// tokenizer_config.json.
NamedText template_in_folder(const fs::path& folder, const std::string& name, bool in_config) {
  const fs::path file =
      name == "default" ? folder / "chat_template.jinja" : (folder / kToolTemplate).parent_path() / (name + ".jinja");
  if (auto text = template_text(file)) return {std::move(*text), file.string()};
  const auto config = in_config ? template_text(folder / "tokenizer_config.json") : std::nullopt;
  if (!config) return {};
  const std::string place = (folder / "tokenizer_config.json").string();
  auto text = chat_template_from_config(*config, place, name);
  return text ? NamedText{std::move(*text), place} : NamedText();
}

// The tokens are set even if the folder has no template, since a template of the user may write them. A default
// template in a file of its own replaces all templates of tokenizer_config.json.
ChatSource source_in_folder(const fs::path& folder, const Tokenizer& tokenizer) {
  ChatSource source;
  source.tokens = tokenizer.special_tokens();
  NamedText usual = template_in_folder(folder, "default", true);
  NamedText tools = template_in_folder(folder, "tool_use", !usual.place.ends_with(".jinja"));
  source.name = usual.place.empty() ? tools.place : usual.place;
  source.text = std::move(usual.text);
  source.tool_text = std::move(tools.text);
  return source;
}

std::string template_in_gguf(const Metadata& metadata, const std::string& name) {
  const auto found = metadata.find("tokenizer.chat_template" + (name == "default" ? "" : "." + name));
  const auto* text = found == metadata.end() ? nullptr : std::get_if<std::string>(&found->second);
  return text == nullptr ? "" : *text;
}

ChatSource source_in_gguf(const std::string& path, const Metadata& metadata) {
  ChatSource source;
  const std::pair<const char*, const char*> named[] = {
      {"bos_token", "bos"},     {"eos_token", "eos"}, {"unk_token", "unknown"}, {"sep_token", "seperator"},
      {"pad_token", "padding"}, {"cls_token", "cls"}, {"mask_token", "mask"}};  // spelled this way in the format
  for (const auto& [name, key] : named) {
    const std::string text = gguf_token(metadata, fmt::format("tokenizer.ggml.{}_token_id", key));
    if (!text.empty()) source.tokens.emplace_back(name, text);
  }
  source.text = template_in_gguf(metadata, "default");
  source.tool_text = template_in_gguf(metadata, "tool_use");
  if (!source.text.empty() || !source.tool_text.empty()) source.name = path + ": tokenizer.chat_template";
  return source;
}

// Replaces the templates by model.chat_template: a file, the template's text (with {{ or {%), or the name of one of the
// model's templates, such as "rag".
void take_override(const std::string& given, const NamedText& own, ChatSource& source) {
  source.name = "model.chat_template";
  source.text = given;
  source.tool_text.clear();
  if (given.find("{%") != std::string::npos || given.find("{{") != std::string::npos) return;
  auto text = template_text(given);
  MAGISTER_CHECK(text.has_value() || !own.text.empty(), ExitCode::kInputOutput,
                 "{}: there is no such file, and the model has no template of that name (model.chat_template names "
                 "it); check the path",
                 printable(given));
  source.name = text ? given : own.place;
  source.text = text ? std::move(*text) : own.text;
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
  NamedText own;  // the model's template with the given name
  const bool may_be_name = !given.empty() && given.size() < 80 && given.find_first_of("/.{} \n") == std::string::npos;
  const auto take_gguf = [&](const Metadata& metadata) {
    source = source_in_gguf(model_path, metadata);
    if (may_be_name) own = {template_in_gguf(metadata, given), model_path + ": tokenizer.chat_template." + given};
  };
  if (fs::is_directory(model_path)) {
    source = source_in_folder(model_path, tokenizer);
    if (may_be_name) own = template_in_folder(model_path, given, true);
    // The only template of a tokenizer_config.json is found under any name.
    if (own.text == source.text && given != "default") own = {};
  } else if (open_file != nullptr) {
    take_gguf(open_file->metadata());
  } else if (model_path.ends_with(".gguf")) {
    take_gguf(TensorFile::open(model_path)->metadata());
  }
  if (!given.empty()) take_override(given, own, source);
  return source;
}

}  // namespace magister
