// Chooses the file of a model that holds its tokenizer. GGUF keys: tokenizer.ggml.* of the ggml GGUF specification.
// A key with another type than expected is refused by name; an absent key keeps its default.
#include "magister/runtime/tokenizer_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/io/checkpoint/model_path.h"
#include "magister/io/whole_file.h"
#include "magister/text/gguf_ends.h"

namespace magister {

namespace {

[[noreturn]] void wrong_type(const std::string& source, const char* key) {
  fail(ExitCode::kData,
       "{}: {} has an unexpected type (the vocabulary cannot be read); convert the model to GGUF again",
       printable(source), key);
}

template <typename T>
const T* find(const Metadata& metadata, const char* key, const std::string& source) {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return nullptr;
  const T* const value = std::get_if<T>(&at->second);
  if (value == nullptr) wrong_type(source, key);
  return value;
}

// GGUF writers store ids as any integer type.
void read_id(const Metadata& metadata, const char* key, const std::string& source, std::int64_t& id) {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return;
  if (const auto* value = std::get_if<std::int64_t>(&at->second)) {
    id = *value;
  } else if (const auto* unsigned_value = std::get_if<std::uint64_t>(&at->second);
             unsigned_value != nullptr && *unsigned_value <= 0x7FFFFFFF) {
    id = static_cast<std::int64_t>(*unsigned_value);
  } else {
    wrong_type(source, key);
  }
}

// No larger tokenizer.json is known; the largest vocabularies take 20-35 MB.
constexpr std::uintmax_t kMaxTokenizerBytes = 256u << 20;

TokenizerConfigFiles read_config_files(const std::filesystem::path& vocabulary) {
  constexpr std::uintmax_t kMost = 64u << 20;
  const std::filesystem::path folder = vocabulary.parent_path();
  const auto read = [&](const char* name) {
    std::error_code error;
    return std::filesystem::is_regular_file(folder / name, error)
               ? read_whole_file(folder / name, kMost, "it names tokens of the vocabulary")
               : std::string();
  };
  return {read("tokenizer_config.json"), read("special_tokens_map.json"), read("added_tokens.json"),
          folder.empty() ? "." : folder.string()};
}

// add_bos_token and add_eos_token of tokenizer_config.json, if it is next to a SentencePiece model.
SentencePieceEnds named_ends(const TokenizerConfigFiles& files) {
  SentencePieceEnds ends;
  const nlohmann::json config = nlohmann::json::parse(files.config, nullptr, false);
  const auto read = [&](const char* key, std::optional<bool>& value) {
    if (config.is_object() && config.contains(key) && config.at(key).is_boolean()) value = config.at(key).get<bool>();
  };
  read("add_bos_token", ends.add_bos);
  read("add_eos_token", ends.add_eos);
  return ends;
}

// The name tells the kind of file; tokenizer.model is either SentencePiece or, for Llama 3, a tiktoken list.
Tokenizer tokenizer_of_file(const std::filesystem::path& path) {
  const TokenizerConfigFiles config_files = read_config_files(path);
  if (path.extension() == ".gguf")
    return Tokenizer::from_gguf(gguf_vocabulary(TensorFile::open(path.string())->metadata(), path.string()),
                                path.string(), config_files);
  const std::string content = read_whole_file(path, kMaxTokenizerBytes, "text is turned into tokens by it"),
                    name = path.filename().string();
  if (name.starts_with("tekken") && name.ends_with(".json"))
    return Tokenizer::from_tekken(content, path.string(), config_files);
  if (name.ends_with(".json")) return Tokenizer::from_json(content, path.string(), config_files);
  // A tiktoken list begins with "IQ== 0", a SentencePiece model with the byte 0x0A.
  const bool list = name.ends_with(".tiktoken") ||
                    (!content.empty() && content[0] > ' ' && content.substr(0, 64).find(' ') != std::string::npos);
  return list ? Tokenizer::from_tiktoken(content, path.string(), config_files)
              : Tokenizer::from_sentencepiece(content, path.string(), named_ends(config_files), config_files);
}

constexpr const char* kVocabularies[] = {"tokenizer.json",          "tekken.json",   "tokenizer.model", "spiece.model",
                                         "sentencepiece.bpe.model", "qwen.tiktoken", "tokenizer.gguf"};

Tokenizer tokenizer_in_folder(const std::filesystem::path& folder) {
  std::error_code error;
  for (const char* name : kVocabularies) {
    if (std::filesystem::is_regular_file(folder / name, error)) return tokenizer_of_file(folder / name);
  }
  fail(ExitCode::kData,
       "{}: no such file, nor tekken.json, tokenizer.model, spiece.model, sentencepiece.bpe.model, qwen.tiktoken or "
       "tokenizer.gguf (text cannot be turned into tokens); put the model's tokenizer.json there",
       printable((folder / "tokenizer.json").string()));
}

}  // namespace

std::vector<std::string> files_next_to_weights(const std::string& tokenizer_folder, const std::string& model_folder) {
  std::vector<std::string> paths;
  const auto add = [&](const std::string& folder, const char* name) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (!folder.empty() && std::filesystem::is_regular_file(path, error)) paths.push_back(path.string());
  };
  for (const char* name : kVocabularies) add(tokenizer_folder, name);
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
                           "merges.txt", "vocab.txt", "chat_template.jinja", "chat_template.json", kToolTemplate})
    add(tokenizer_folder, name);
  add(model_folder, "generation_config.json");
  return paths;
}

GgufVocabulary gguf_vocabulary(const Metadata& metadata, const std::string& source) {
  GgufVocabulary vocabulary;
  const auto* const tokens = find<std::vector<std::string>>(metadata, "tokenizer.ggml.tokens", source);
  const auto* const model = find<std::string>(metadata, "tokenizer.ggml.model", source);
  MAGISTER_CHECK(tokens != nullptr && model != nullptr, ExitCode::kData,
                 "{}: no tokenizer.ggml.tokens or tokenizer.ggml.model in its metadata (text cannot be turned into "
                 "tokens); use a GGUF file that holds its vocabulary",
                 printable(source));
  vocabulary.tokens = *tokens;
  vocabulary.model = *model;
  if (const auto* pre = find<std::string>(metadata, "tokenizer.ggml.pre", source)) vocabulary.pre = *pre;
  if (const auto* merges = find<std::vector<std::string>>(metadata, "tokenizer.ggml.merges", source)) {
    vocabulary.merges = *merges;
  }
  if (const auto* types = find<std::vector<std::int64_t>>(metadata, "tokenizer.ggml.token_type", source)) {
    for (const std::int64_t type : *types) {
      MAGISTER_CHECK(
          type >= 0 && type <= 6, ExitCode::kData,
          "{}: token type {} in tokenizer.ggml.token_type (types are 0 to 6); convert the model to GGUF again",
          printable(source), type);
      vocabulary.token_types.push_back(static_cast<std::int32_t>(type));
    }
  }
  if (const auto* scores = find<std::vector<double>>(metadata, "tokenizer.ggml.scores", source))
    vocabulary.scores = *scores;
  if (const auto* map = find<std::vector<std::int64_t>>(metadata, "tokenizer.ggml.precompiled_charsmap", source)) {
    for (const std::int64_t byte : *map) vocabulary.precompiled_charsmap += static_cast<char>(byte);
  }
  if (const auto* name = find<std::string>(metadata, "general.name", source)) vocabulary.name = *name;
  read_id(metadata, "tokenizer.ggml.bos_token_id", source, vocabulary.bos_id);
  read_id(metadata, "tokenizer.ggml.eos_token_id", source, vocabulary.eos_id);
  read_id(metadata, "tokenizer.ggml.unknown_token_id", source, vocabulary.unknown_id);
  read_id(metadata, "tokenizer.ggml.padding_token_id", source, vocabulary.padding_id);
  // spelled this way in the format
  read_id(metadata, "tokenizer.ggml.seperator_token_id", source, vocabulary.separator_id);
  read_id(metadata, "tokenizer.ggml.cls_token_id", source, vocabulary.cls_id);
  const std::pair<const char*, std::optional<bool>*> flags[] = {
      {"tokenizer.ggml.add_bos_token", &vocabulary.add_bos},
      {"tokenizer.ggml.add_eos_token", &vocabulary.add_eos},
      {"tokenizer.ggml.add_space_prefix", &vocabulary.add_space_prefix},
      {"tokenizer.ggml.remove_extra_whitespaces", &vocabulary.remove_extra_whitespaces},
      {"tokenizer.ggml.normalizer.lowercase", &vocabulary.lowercase},
      {"tokenizer.ggml.normalizer.strip_accents", &vocabulary.strip_accents},
  };
  for (const auto& [key, flag] : flags) {
    if (const bool* given = find<bool>(metadata, key, source)) *flag = *given;
  }
  return vocabulary;
}

std::vector<TokenId> gguf_end_tokens(const Metadata& metadata, const std::string& source) {
  GgufEndKeys keys;
  read_id(metadata, "tokenizer.ggml.eot_token_id", source, keys.eot);
  read_id(metadata, "tokenizer.ggml.eom_token_id", source, keys.eom);
  read_id(metadata, "tokenizer.ggml.fim_pad_token_id", source, keys.fim_pad);
  read_id(metadata, "tokenizer.ggml.fim_rep_token_id", source, keys.fim_repository);
  read_id(metadata, "tokenizer.ggml.fim_sep_token_id", source, keys.fim_separator);
  return gguf_end_tokens(gguf_vocabulary(metadata, source), keys);
}

Tokenizer load_tokenizer(const std::string& model_path, const TensorFile& file) {
  std::error_code error;
  if (std::filesystem::is_directory(model_path, error)) return tokenizer_in_folder(model_path);
  return Tokenizer::from_gguf(gguf_vocabulary(file.metadata(), model_path), model_path);
}

Tokenizer load_tokenizer(const std::string& name) {
  const std::string model_path = find_model(name);
  std::error_code error;
  if (std::filesystem::is_directory(model_path, error)) return tokenizer_in_folder(model_path);
  for (const char* ending : {".json", ".model", ".tiktoken"}) {
    if (model_path.ends_with(ending)) return tokenizer_of_file(model_path);
  }
  return load_tokenizer(model_path, *TensorFile::open(model_path));
}

}  // namespace magister
