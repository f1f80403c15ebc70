// A model's files, opened and described, and the type its products run in: the same on every rank of a mixed cluster.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/tensor_file.h"
#include "magister/model/model_config.h"
#include "magister/model/quantize.h"
#include "magister/model/weights.h"
#include "magister/parallel/communicator.h"
#include "magister/tasks/experiment_config.h"

namespace magister {

struct OpenModel {
  std::unique_ptr<TensorFile> file;
  ModelDescription description;
  at::ScalarType dtype = at::kFloat;
  at::ScalarType plain_dtype = at::kFloat;  // what it would be without quantisation
  QuantScheme quantization;
  QuantizedProducts products;  // with quantisation

  // "layers int4: 118 products with the file's own codes, 2 made in groups of 32"; empty without quantisation.
  std::string layers() const;
  // Weights of a shard; keeps a reference to this.
  std::function<std::uint64_t(int tp_rank)> shard_bytes(int tp_size) const;
  // Of the event "start": dtype, quantization, products_kept, products_made.
  nlohmann::ordered_json facts() const;
};

// Collective over world.
OpenModel open_model(const Communicator& world, const ModelSection& section);

std::string dtype_name(at::ScalarType dtype);

// Tokens that end a text: eos_token_id of generation_config.json, else of config.json (a number or a list), else of the
// GGUF file; empty when the model names none. Local.
std::vector<TokenId> end_tokens(const std::string& model_path, const ModelConfig& config);

}  // namespace magister
