// Loads the tokenizer of a model's path, from a GGUF file's metadata or from a folder's vocabulary file. It connects
// the modules text (vocabularies) and io (files), which do not know each other.
#pragma once

#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/text/tokenizer.h"

namespace magister {

// model_path: a .gguf file, a folder with a vocabulary file (tokenizer.json and others), a vocabulary file, or a name
// in the hub's cache. Errors name the file and the missing piece.
Tokenizer load_tokenizer(const std::string& model_path);
// The same if the model's tensors are already open.
Tokenizer load_tokenizer(const std::string& model_path, const TensorFile& file);
// The template for chats with tools that transformers reads in a folder with chat_template.jinja.
inline constexpr const char* kToolTemplate = "additional_chat_templates/tool_use.jinja";

// The existing files that are used together with a model's weights and config: vocabulary, special tokens and chat
// template in the tokenizer's folder, and generation_config.json in the model's folder. Nothing is listed for an empty
// path.
std::vector<std::string> files_next_to_weights(const std::string& tokenizer_folder, const std::string& model_folder);
// Reads the vocabulary from an open GGUF file's metadata.
GgufVocabulary gguf_vocabulary(const Metadata& metadata, const std::string& source);
// The tokens of that vocabulary that end a text, by the rules of llama.cpp (text/gguf_ends.h).
std::vector<TokenId> gguf_end_tokens(const Metadata& metadata, const std::string& source);

}  // namespace magister
