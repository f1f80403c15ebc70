// Where a model's chat template stands, and the tokens that it may write.
#pragma once

#include <string>

#include "magister/runtime/checkpoint.h"

namespace magister {

// model_path: of the tokenizer, a folder or a GGUF file; open_file: that file where it is open already, else null; given: model.chat_template,
// which is taken in place of the model's own, or empty. Without a template the name is empty.
ChatSource find_chat_source(const std::string& model_path, const TensorFile* open_file, const Tokenizer& tokenizer,
                            const std::string& given);

}  // namespace magister
