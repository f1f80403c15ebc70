// The trained model as a folder in Hugging Face's layout: config.json, model.safetensors with the names of the model it
// began as, and that one's tokenizer files; or an adapter in PEFT's. transformers loads both, and so does this program.
#pragma once

#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/train/lora.h"
#include "magister/train/parameters.h"

namespace magister {

// What a trained model takes over.
struct ModelOrigin {
  std::string folder;     // with the config that it began with
  std::string name;       // by which others find it: that folder, or its name in the hub
  std::string tokenizer;  // folder or GGUF file that its tokenizer is of; a GGUF file's becomes tokenizer.gguf
  // Where it is not the tokenizer's folder's own: the template that was learnt from, and tokenizer_config.json for a
  // GGUF file's vocabulary.
  std::string chat_template, tokenizer_config, tool_template = {};
  // What ends the student's texts, the first of them a turn; empty: what ended the model's.
  std::vector<TokenId> end_tokens = {};
};

// Made beside its place and renamed; a folder of the same files stays as it is, and what else stands there is put aside
// as <folder>.previous-1, -2, ... Throws Error(kInputOutput). Local, one rank. A layout with a head of labels makes a
// ...ForSequenceClassification of config.json, whose pad_token_id is then this one.
void write_model_folder(const std::string& folder, const ModelOrigin& origin, const ParameterLayout& layout,
                        const at::Tensor& flat_weights, TokenId pad_token_id);
// An adapter's folder as PEFT's save_pretrained writes it - adapter_config.json, adapter_model.safetensors, the
// tokenizer's files - which PEFT, transformers and `model.adapter` load on the model at origin.folder, whose
// model_sha256 is base_sha256. Made and put aside likewise. Local, one rank.
void write_adapter_folder(const std::string& folder, const ModelOrigin& origin, const LoraLayout& layout,
                          const at::Tensor& flat_weights, const std::string& base_sha256);

}  // namespace magister
