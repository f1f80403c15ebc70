// Finds a model's chat template and the tokens that it may write.
#pragma once

#include <string>

#include "magister/runtime/checkpoint.h"

namespace magister {

// model_path: the tokenizer's folder or GGUF file; open_file: that file if it is already open, else null; given:
// model.chat_template, which replaces the model's own template, or empty. Without a template the name is empty.
ChatSource find_chat_source(const std::string& model_path, const TensorFile* open_file, const Tokenizer& tokenizer,
                            const std::string& given);

}  // namespace magister
