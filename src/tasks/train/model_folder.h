// The trained model as a folder in Hugging Face's layout: config.json, model.safetensors with the names of the model it began as, and that
// one's tokenizer files; or an adapter in PEFT's. transformers loads both, and so does this program.
#pragma once

#include <string>

#include "magister/core/types.h"
#include "magister/train/lora.h"
#include "magister/train/parameters.h"

namespace magister {

// Made beside its place and renamed; what stands there already is put aside as <folder>.previous-1, -2, ... Throws Error(kInputOutput).
// Local, one rank.
// chat_template: the one that was learnt from, where it is not the model's own; else empty. A layout with a head of labels makes a
// ...ForSequenceClassification of config.json, whose pad_token_id is then this one.
void write_model_folder(const std::string& folder, const std::string& source_folder, const ParameterLayout& layout,
                        const at::Tensor& flat_weights, const std::string& chat_template, TokenId pad_token_id);
// Of config.json: the deviation of new weights, 0.02 where it says nothing. Error(kData) for what is none.
double initializer_range(const std::string& source_folder);
// An adapter's folder as PEFT's save_pretrained writes it - adapter_config.json, adapter_model.safetensors, the tokenizer's files - which PEFT,
// transformers and `model.adapter` load on the model at source_folder. Made and put aside likewise. Local, one rank.
void write_adapter_folder(const std::string& folder, const std::string& source_folder, const LoraLayout& layout,
                          const at::Tensor& flat_weights, const std::string& chat_template);
// Renames what stands at `path` to the first free name <path>.previous-N.
void put_path_aside(const std::string& path);

}  // namespace magister
