// From timed calls of a pass to the parts of a layer: which part a call belongs to, what it computes and moves, and what it takes of a
// model of all layers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/bench/call_timer.h"
#include "magister/model/model_config.h"

namespace magister {

// What the arithmetic of a pass needs to know. Legend: as in src/GLOSSARY.md, one shard.
struct PassSizes {
  ModelConfig config;             // with the number of layers that the pass has
  std::int64_t all_layers = 0;    // of the whole model
  std::int64_t rows = 0;          // T of a whole pass, R of a decoding one
  std::int64_t head_rows = 0;     // rows whose logits are made
  double visible_keys = 0;        // over all rows
  std::int64_t cached_keys = 0;   // that attention reads from the cache
  std::int64_t number_bytes = 2;  // of activations and plain weights
  std::int64_t weight_bits = 16;  // as stored
  std::int64_t group = 0;         // inputs a scale; 0: one an output

  // [N, K] of qkv_proj, o_proj, gate_up_proj, down_proj, head; {0, 0} for any other name.
  std::pair<std::int64_t, std::int64_t> weight(const std::string& place) const;
};

// The part of each call, in the order of the pass: inputs, embedding, norm, qkv_proj, rotary, attention, o_proj, gate_up_proj, activation,
// down_proj, head, reduction, rest. By the kernels that part a layer (norm, rotation, activation), and by the shapes of products.
std::vector<std::string> places_of(const std::vector<TimedCall>& calls, const PassSizes& sizes);

// Calls of one part with one name and shape. ms, flops and bytes: of the whole model, computed from the layers that the pass has; flops and
// bytes are 0 where they are not known, bytes count every input and output once.
struct LayerPart {
  std::string place, name;
  std::int64_t M = 0, N = 0, K = 0;
  int calls = 0;  // in the measured pass
  double measured_ms = 0, ms = 0, flops = 0, bytes = 0;
};

struct LayerTimes {
  std::vector<LayerPart> parts;  // longest first
  double ms = 0;                 // all parts and gaps, of the whole model
  double gaps_ms = 0;            // between two calls, of the whole model
};

// passes: the same pass several times; each part's median counts.
LayerTimes layer_times(const std::vector<std::vector<TimedCall>>& passes, const PassSizes& sizes);

nlohmann::ordered_json layer_json(const LayerTimes& times);
// A table for people; parts below a 500th of the whole stand in one line.
std::string layer_table(const nlohmann::ordered_json& result);

}  // namespace magister
