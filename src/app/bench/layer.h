// bench layer: a pass of a model on a GPU, part by part.
#pragma once

#include <nlohmann/json.hpp>

#include "app/bench/bench.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"

namespace magister {

// all_layers: number of layers of the model whose first layers `model` has. With options.rows it measures a decoding
// pass of that many texts after options.past tokens each, with the logits of its rows; otherwise a unit of
// options.tokens, with the teacher's head, or, after options.past cached tokens per text, with the logits of the last
// rows. parts: see layer_parts.h; pass_ms: the same pass with the layers that are made, without stamps.
nlohmann::ordered_json bench_layer(const BenchOptions& options, Transformer& model, ProcessGroup& group,
                                   std::int64_t all_layers);

}  // namespace magister
