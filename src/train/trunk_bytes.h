// Shared by the plans of CPUs' and GPUs' passes. All counts are per token.
#pragma once

#include <algorithm>
#include <cstdint>

#include "magister/model/model_config.h"

namespace magister {

// Columns of the widest MLP of any layer without experts.
double widest_mlp(const ModelConfig& config);
// Numbers of the stream of a token.
double stream_numbers(const ModelConfig& config);
// Numbers that the operations of altup.cpp keep in a layer, f32 on any device.
double altup_numbers(const ModelConfig& config, std::int64_t layer);
// The same at the two ends of the stream: the vectors, and the products with the inputs that are copied for them.
double altup_end_numbers(const ModelConfig& config);

// Bytes of all layers; of_layer(number): of one. With recompute every layer keeps its input from the stream, and one
// layer at a time is there whole.
template <typename OfLayer>
double bytes_of_layers(const ModelConfig& config, bool recompute, const OfLayer& of_layer) {
  double all = 0, largest = 0;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const double layer = of_layer(i);
    all += layer;
    largest = std::max(largest, layer);
  }
  if (!recompute) return all + 4 * altup_end_numbers(config);
  return 4 * stream_numbers(config) * static_cast<double>(config.num_hidden_layers) + largest;
}

// Vectors by layer: rows of the table, the product before its norm and after it, the vectors, and their gradients.
double bytes_of_vectors(const ModelConfig& config);

// The steps of one layer's scores that are there at once and not kept, where a formula of ATen computes them.
double bytes_of_score_steps(const ModelConfig& config, std::int64_t longest);

// The chosen keys of all layers with an indexer, which a pass keeps also where it computes layers again; without that
// they are counted with the layers.
double bytes_of_choices(const ModelConfig& config, std::int64_t longest, bool recompute);

}  // namespace magister
