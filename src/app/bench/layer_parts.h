// Turns the timed calls of a pass into parts of a layer: the part of each call, its FLOPs and bytes, and its time in a
// model with all layers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/bench/call_timer.h"
#include "magister/model/model_config.h"

namespace magister {

// The sizes from which FLOPs and bytes of a pass are computed. Legend: as in src/GLOSSARY.md, for one shard.
struct PassSizes {
  ModelConfig config;             // with the number of layers in the pass
  std::int64_t all_layers = 0;    // of the whole model
  std::int64_t rows = 0;          // T of a whole pass, R of a decoding pass
  std::int64_t head_rows = 0;     // rows whose logits are computed
  double visible_keys = 0;        // summed over all rows
  std::int64_t cached_keys = 0;   // keys that attention reads from the cache
  std::int64_t number_bytes = 2;  // bytes per activation and per plain weight
  std::int64_t weight_bits = 16;  // as stored
  std::int64_t group = 0;         // inputs per scale; 0: one scale per output

  // [N, K] of qkv_proj, o_proj, gate_up_proj, down_proj, head; {0, 0} for any other name.
  std::pair<std::int64_t, std::int64_t> weight(const std::string& place) const;
};

// The part of each call, in the order of the pass: inputs, embedding, norm, qkv_proj, rotary, attention, o_proj,
// gate_up_proj, activation, down_proj, head, reduction, rest. It follows from the kernels that separate the parts of a
// layer (norm, rotation, activation) and from the shapes of products. A product that ends with the rotation or the gate
// (paired_product.h) is qkv_proj or gate_up_proj.
std::vector<std::string> places_of(const std::vector<TimedCall>& calls, const PassSizes& sizes);

// Calls of one part with the same name and shape. ms, flops and bytes are for the whole model, scaled from the layers
// in the pass; flops and bytes are 0 if unknown; bytes count every input and output once.
struct LayerPart {
  std::string place, name;
  std::int64_t M = 0, N = 0, K = 0;
  int calls = 0;  // in the measured pass
  double measured_ms = 0, ms = 0, flops = 0, bytes = 0;
};

struct LayerTimes {
  std::vector<LayerPart> parts;  // longest first
  double ms = 0;                 // all parts and gaps, of the whole model
  double gaps_ms = 0;            // between calls, of the whole model
};

// passes: the same pass several times; the result has the median of each part.
LayerTimes layer_times(const std::vector<std::vector<TimedCall>>& passes, const PassSizes& sizes);

nlohmann::ordered_json layer_json(const LayerTimes& times);
// A table for users; parts below a 500th of the whole are summed in one line.
std::string layer_table(const nlohmann::ordered_json& result);

}  // namespace magister
