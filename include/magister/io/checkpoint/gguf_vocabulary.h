// A vocabulary out of a GGUF file's metadata as a GGUF file without tensors, as llama.cpp keeps vocabularies alone (ggml-vocab-*.gguf): for a
// model in Hugging Face's layout that shares the tokenizer of a GGUF file. Source: ggml's GGUF specification v3.
#pragma once

#include <string>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

// The bytes of the file: general.architecture, general.name and all of tokenizer.*, in the types that llama.cpp asks for.
std::string gguf_vocabulary_file(const Metadata& metadata);

}  // namespace magister
