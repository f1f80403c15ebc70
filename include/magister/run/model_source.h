// What a model's path holds besides its weights: the tokenizer, from a GGUF file's metadata or a folder's tokenizer.json.
// The bridge between text (vocabularies) and io (files), which do not know each other.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/text/tokenizer.h"

namespace magister {

// model_path: a .gguf file, a folder with tokenizer.json, or a .json file. Errors name the file and the missing piece.
Tokenizer load_tokenizer(const std::string& model_path);
// The same where the model's tensors are open already.
Tokenizer load_tokenizer(const std::string& model_path, const TensorFile& file);
// Names of the files in a model's folder that a tokenizer is read from, in the order in which they are looked for.
std::span<const char* const> vocabulary_files();
// Of what belongs to a tokenizer beside its vocabulary: special tokens and chat template.
std::span<const char* const> tokenizer_companions();
constexpr const char* kGenerationConfig = "generation_config.json";
// Those of a folder's files that stand beside weights and config and are used with them: all of the above that are there.
std::vector<std::string> files_beside_weights(const std::string& folder);
// The vocabulary in an open GGUF file's metadata.
GgufVocabulary gguf_vocabulary(const Metadata& metadata, const std::string& source);

}  // namespace magister
