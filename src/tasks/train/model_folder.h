// Writes the trained model as a folder in Hugging Face's layout: config.json, model.safetensors with the tensor names
// of the model that the training began with, and the tokenizer files of that model. An adapter is written in PEFT's
// layout. transformers and this program load both.
#pragma once

#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/train/lora.h"
#include "magister/train/parameters.h"

namespace magister {

// Names and texts that a trained model takes from the model that the training began with.
struct ModelOrigin {
  std::string folder;     // folder of the first model, with its config.json
  std::string name;       // folder of the first model, or its name in the hub
  std::string tokenizer;  // the tokenizer's folder or GGUF file; the latter is copied as tokenizer.gguf
  // Texts that replace or add to the files of the tokenizer's folder: the chat templates that were learnt, and
  // tokenizer_config.json for the vocabulary of a GGUF file. Empty: the folder's own are copied.
  std::string chat_template, tokenizer_config, tool_template = {};
  // The tokens that end the student's texts; the first one ends a turn. Empty: those of the first model.
  std::vector<TokenId> end_tokens = {};
};

// Writes <folder>.creating and renames it. An existing folder with the same files is kept; anything else at that path
// is renamed to <folder>.previous-1, -2, ... Throws Error(kInputOutput). Local, one rank. If the layout has a head of
// labels, config.json describes a ...ForSequenceClassification with this pad_token_id.
void write_model_folder(const std::string& folder, const ModelOrigin& origin, const ParameterLayout& layout,
                        const at::Tensor& flat_weights, TokenId pad_token_id);
// Writes an adapter's folder as PEFT's save_pretrained does: adapter_config.json, adapter_model.safetensors and the
// tokenizer files. PEFT, transformers and `model.adapter` load it on the model at origin.folder, whose model_sha256 is
// base_sha256. Writes and renames as above. Local, one rank.
void write_adapter_folder(const std::string& folder, const ModelOrigin& origin, const LoraLayout& layout,
                          const at::Tensor& flat_weights, const std::string& base_sha256);

}  // namespace magister
