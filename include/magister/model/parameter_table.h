// The parameter table: every weight of a model once - its names in files, its shape, what it is for and how shards divide it. Names, the check
// of a file, bytes in memory, the number of parameters and FLOPs all come from these rows.
// Legend: D hidden, E head_dim, Q and K query and KV heads times E, F MLP columns, X experts, V vocabulary.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "magister/model/model_config.h"
#include "magister/model/partition.h"

namespace magister {

// Which part of a weight a shard holds.
enum class Division {
  kWhole,          // all of it, on every shard
  kFirstShard,     // all of it on shard 0: added to a sum of partial products, it counts once
  kVocabRows,      // rows of Partition::vocab
  kHeads,          // an entry a query head
  kHeadRows,       // rows of the query heads
  kKvHeadRows,     // rows of the KV heads
  kMlpRows,        // rows of Partition::mlp
  kHeadColumns,    // columns of the query heads: the product is partial
  kMlpColumns,     // columns of Partition::mlp: likewise
  kExpertRows,     // rows of Partition::expert
  kExpertColumns,  // columns of Partition::expert: likewise partial
};

// Weights that are multiplied together, rows under rows. kNone: a norm, a bias (f32 in memory) or a table.
enum class FusedProduct { kNone, kQkv, kOutput, kGateUp, kDown };

// A weight of a decoder layer.
struct LayerParameter {
  std::string TensorNames::Layer::* name;
  const char *hf, *gguf;            // below the layer's prefix; "{}": the expert's number
  std::vector<std::int64_t> shape;  // of the whole model's
  Division division = Division::kWhole;
  FusedProduct product = FusedProduct::kNone;
  // Where it stands in a tensor of the file that holds others, too, under its rows: the shape of all of it, and this one's first row.
  std::vector<std::int64_t> stored{};
  std::int64_t first_row = 0;
  std::int64_t row_step = 1;  // from a row to its next one there
  // Of an expert's weight its number and its name; `name` is not used then.
  std::int64_t expert = -1;
  std::string TensorNames::Layer::Expert::* expert_name = nullptr;

  std::string& name_in(TensorNames::Layer& names) const {
    return expert < 0 ? names.*name : names.experts[static_cast<std::size_t>(expert)].*expert_name;
  }
  const std::string& name_in(const TensorNames::Layer& names) const {
    return expert < 0 ? names.*name : names.experts[static_cast<std::size_t>(expert)].*expert_name;
  }
  // Of the file's tensor that holds it.
  std::vector<std::int64_t> shape_in(const TensorNames& names) const;
};
// Those that this layer of a model of this config has.
std::vector<LayerParameter> layer_parameters(const ModelConfig& config, std::int64_t layer);
// gate, up and down of one expert and their biases: a part of the rows above.
std::vector<LayerParameter> expert_parameters(const ModelConfig& config, std::int64_t expert);
// Rows of each product of a layer: four, or with experts two and two an expert.
std::vector<std::vector<LayerParameter>> products_of(const std::vector<LayerParameter>& table);

// Names of the file's tensors that stand as [in, out], as its linear layers otherwise do not.
std::set<std::string> tensors_with_inputs_first(const ModelDescription& description);

// A weight outside the layers: the embeddings, the last norm, an untied head.
struct ModelParameter {
  std::string TensorNames::* name;
  const char *hf, *gguf;
  std::vector<std::int64_t> shape;
  Division division = Division::kWhole;
};
std::vector<ModelParameter> model_parameters(const ModelConfig& config);

std::uint64_t num_elements(const std::vector<std::int64_t>& shape);
// What a shard holds of a weight: ranges of its rows and columns; a vector has one row. Empty ranges: nothing.
struct ShardSlice {
  IndexRange rows, columns;
  std::uint64_t num_elements() const { return rows.size() * columns.size(); }
};
ShardSlice slice_of(const std::vector<std::int64_t>& shape, Division division, const Partition& partition,
                    const ModelConfig& config, int tp_rank);

}  // namespace magister
