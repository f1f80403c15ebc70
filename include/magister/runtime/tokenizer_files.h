// What a model's path holds besides its weights: the tokenizer, from a GGUF file's metadata or a folder's tokenizer.json.
// The bridge between text (vocabularies) and io (files), which do not know each other.
#pragma once

#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/text/tokenizer.h"

namespace magister {

// model_path: a .gguf file, a folder with tokenizer.json, or a .json file. Errors name the file and the missing piece.
Tokenizer load_tokenizer(const std::string& model_path);
// The same where the model's tensors are open already.
Tokenizer load_tokenizer(const std::string& model_path, const TensorFile& file);
// In a folder with chat_template.jinja: what transformers writes chats with tools by.
inline constexpr const char* kToolTemplate = "additional_chat_templates/tool_use.jinja";

// What stands beside a model's weights and config and is used with them, as far as it is there: vocabulary, special tokens and chat template of
// the tokenizer's folder, and generation_config.json of the model's. An empty path: nothing of it.
std::vector<std::string> files_beside_weights(const std::string& tokenizer_folder, const std::string& model_folder);
// The vocabulary in an open GGUF file's metadata.
GgufVocabulary gguf_vocabulary(const Metadata& metadata, const std::string& source);
// The tokens of that vocabulary that end a text, as llama.cpp knows them (text/gguf_ends.h).
std::vector<TokenId> gguf_end_tokens(const Metadata& metadata, const std::string& source);

}  // namespace magister
