// Copies the vocabulary of a GGUF file's metadata into a GGUF file without tensors, as llama.cpp stores a vocabulary
// alone (ggml-vocab-*.gguf). A model in Hugging Face's layout uses it to share the tokenizer of a GGUF file. Source:
// ggml's GGUF specification v3.
#pragma once

#include <string>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

// The bytes of the file: general.architecture, general.name and all of tokenizer.*, in the types that llama.cpp
// expects.
std::string gguf_vocabulary_file(const Metadata& metadata);

}  // namespace magister
