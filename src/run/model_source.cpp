// Which file of a model holds its tokenizer. GGUF keys: tokenizer.ggml.* of the ggml GGUF specification.
// An array that is there with another type than expected is refused by name; what is absent keeps its default.
#include "magister/run/model_source.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "magister/core/error.h"
#include "magister/io/checkpoint/model_path.h"

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

// Larger tokenizer.json files than this are not known; the largest vocabularies take 20-35 MB.
constexpr std::uintmax_t kMaxTokenizerBytes = 256u << 20;

std::string read_tokenizer_json(const std::filesystem::path& path) {
  const std::string shown = printable(path.string());
  std::error_code error;
  MAGISTER_CHECK(std::filesystem::is_regular_file(path, error), ExitCode::kData,
                 "{}: no such file (text cannot be turned into tokens); put the model's tokenizer.json there", shown);
  const std::uintmax_t num_bytes = std::filesystem::file_size(path, error);
  MAGISTER_CHECK(!error && num_bytes <= kMaxTokenizerBytes, ExitCode::kData,
                 "{}: larger than {} bytes (no tokenizer is); fetch the file again", shown, kMaxTokenizerBytes);
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  MAGISTER_CHECK(file.good() && (num_bytes == 0 || text.good()), ExitCode::kInputOutput,
                 "{}: cannot be read (text cannot be turned into tokens); check its permissions", shown);
  return text.str();
}

}  // namespace

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
          "{}: token type {} in tokenizer.ggml.token_type (types are 1 to 6); convert the model to GGUF again",
          printable(source), type);
      vocabulary.token_types.push_back(static_cast<std::int32_t>(type));
    }
  }
  read_id(metadata, "tokenizer.ggml.bos_token_id", source, vocabulary.bos_id);
  read_id(metadata, "tokenizer.ggml.eos_token_id", source, vocabulary.eos_id);
  read_id(metadata, "tokenizer.ggml.unknown_token_id", source, vocabulary.unknown_id);
  read_id(metadata, "tokenizer.ggml.padding_token_id", source, vocabulary.padding_id);
  if (const bool* add = find<bool>(metadata, "tokenizer.ggml.add_bos_token", source)) vocabulary.add_bos = *add;
  if (const bool* add = find<bool>(metadata, "tokenizer.ggml.add_eos_token", source)) vocabulary.add_eos = *add;
  return vocabulary;
}

Tokenizer load_tokenizer(const std::string& model_path, const TensorFile& file) {
  std::error_code error;
  if (std::filesystem::is_directory(model_path, error)) {
    const std::filesystem::path path = std::filesystem::path(model_path) / "tokenizer.json";
    return Tokenizer::from_json(read_tokenizer_json(path), path.string());
  }
  return Tokenizer::from_gguf(gguf_vocabulary(file.metadata(), model_path), model_path);
}

Tokenizer load_tokenizer(const std::string& name) {
  const std::string model_path = find_model(name);
  std::error_code error;
  if (std::filesystem::is_directory(model_path, error)) {
    const std::filesystem::path path = std::filesystem::path(model_path) / "tokenizer.json";
    return Tokenizer::from_json(read_tokenizer_json(path), path.string());
  }
  if (model_path.ends_with(".json")) return Tokenizer::from_json(read_tokenizer_json(model_path), model_path);
  return load_tokenizer(model_path, *TensorFile::open(model_path));
}

}  // namespace magister
