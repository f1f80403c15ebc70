// The parameter table: every weight of a model, with its names in files, its shape, its use and its division over
// shards. Tensor names, the check of a file, bytes in memory, the number of parameters and FLOPs all come from these
// rows.
// Legend: D hidden, E head_dim, Q and K query and KV heads times E, F MLP columns, X experts, V vocabulary.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "magister/model/model_config.h"
#include "magister/model/partition.h"

namespace magister {

// The part of a weight that a shard holds.
enum class Division {
  kWhole,                // all of it, on every shard
  kFirstShard,           // all of it, on shard 0 only: it is added to a sum of partial products, and must count once
  kVocabRows,            // rows of Partition::vocab, as far as the table has them
  kHeads,                // one entry per query head
  kHeadRows,             // rows of the query heads
  kKvHeadRows,           // rows of the KV heads
  kMlpRows,              // rows of Partition::mlp
  kHeadColumns,          // columns of the query heads; the product is partial
  kMlpColumns,           // columns of Partition::mlp; the product is partial
  kExpertRows,           // rows of Partition::expert
  kExpertColumns,        // columns of Partition::expert; the product is partial
  kSharedExpertRows,     // rows of Partition::shared_expert
  kSharedExpertColumns,  // columns of Partition::shared_expert; the product is partial
};

// The product in which a weight is used. Weights of one product are concatenated along the rows. kNone: a norm, a bias
// (f32 in memory), a router (f32), the weights of an indexer's heads (f32) or a table. kQueryUp and kLatentUp: the
// second products of latent attention; the weight of kLatentUp is f32 in memory and is never quantised. kIndexQuery and
// kIndexKey: queries and keys of an indexer.
enum class FusedProduct {
  kNone,
  kQkv,
  kQueryUp,
  kLatentUp,
  kIndexQuery,
  kIndexKey,
  kAttentionGate,
  kOutput,
  kGateUp,
  kDown,
  kPerLayerGate,
  kPerLayerOutput,
  kLaurelLeft,
  kLaurelRight
};

// A weight of a decoder layer.
struct LayerParameter {
  std::string TensorNames::Layer::* name;
  const char *hf, *gguf;            // without the layer's prefix; "{}" is replaced by the number of the expert
  std::vector<std::int64_t> shape;  // of the unsharded weight
  Division division = Division::kWhole;
  FusedProduct product = FusedProduct::kNone;
  // If the file holds this weight inside a larger tensor (fused weights): the shape of that tensor, and the first row
  // of this weight in it.
  std::vector<std::int64_t> stored{};
  std::int64_t first_row = 0;
  std::int64_t row_step = 1;  // distance between two rows of this weight in that tensor
  std::int64_t first_column = 0;
  // Number and name of an expert's weight; `name` is then unused.
  std::int64_t expert = -1;
  std::string TensorNames::Layer::Expert::* expert_name = nullptr;
  // If its rows are not neighbours in that tensor: they come in groups of group_rows, whose first rows are group_step
  // apart. 0: they are neighbours.
  std::int64_t group_rows = 0, group_step = 0;

  // True for the weights of an indexer, which get no gradient.
  bool is_of_indexer() const {
    using Layer = TensorNames::Layer;
    return expert < 0 &&
           (name == &Layer::index_q_proj || name == &Layer::index_k_proj || name == &Layer::index_k_norm ||
            name == &Layer::index_k_norm_bias || name == &Layer::index_weights);
  }
  std::string& name_in(TensorNames::Layer& names) const {
    return expert < 0 ? names.*name : names.experts[static_cast<std::size_t>(expert)].*expert_name;
  }
  const std::string& name_in(const TensorNames::Layer& names) const {
    return expert < 0 ? names.*name : names.experts[static_cast<std::size_t>(expert)].*expert_name;
  }
  // Shape of the tensor in the file that holds this weight.
  std::vector<std::int64_t> shape_in(const TensorNames& names) const;
};
// The weights of this layer.
std::vector<LayerParameter> layer_parameters(const ModelConfig& config, std::int64_t layer);
// gate, up and down of one expert and their biases; layer_parameters() includes these rows.
std::vector<LayerParameter> expert_parameters(const ModelConfig& config, std::int64_t expert);
// Attention's weights up to the heads, in a model with latent attention; layer_parameters() includes these rows.
std::vector<LayerParameter> latent_parameters(const ModelConfig& config, std::int64_t layer);
// The weights of linear attention; layer_parameters() includes these rows.
std::vector<LayerParameter> delta_parameters(const ModelConfig& config);
// The rows of each product of a layer: four products, or, with experts, two and another two per expert.
std::vector<std::vector<LayerParameter>> products_of(const std::vector<LayerParameter>& table);

// Names of the tensors of linear layers that the file stores as [in, out] instead of [out, in].
std::set<std::string> tensors_with_inputs_first(const ModelDescription& description);

// A weight outside the layers: embeddings, last norm, untied head.
struct ModelParameter {
  std::string TensorNames::* name;
  const char *hf, *gguf;  // "{}" is replaced by `number`
  std::vector<std::int64_t> shape;
  Division division = Division::kWhole;
  // For one of several weights of a kind: the kind and the weight's number; `name` is then unused.
  std::vector<std::string> TensorNames::* kind = nullptr;
  std::size_t number = 0;

  std::string& name_in(TensorNames& names) const {
    if (kind == nullptr) return names.*name;
    if ((names.*kind).size() <= number) (names.*kind).resize(number + 1);
    return (names.*kind)[number];
  }
  const std::string& name_in(const TensorNames& names) const {
    return kind == nullptr ? names.*name : (names.*kind)[number];
  }
};
std::vector<ModelParameter> model_parameters(const ModelConfig& config);

std::uint64_t num_elements(const std::vector<std::int64_t>& shape);
// The part of a weight that a shard holds: ranges of rows and columns. A vector has one row. Empty ranges: nothing. For
// a layer's weight, the partition and the heads are those of its layer.
struct ShardSlice {
  IndexRange rows, columns;
  std::uint64_t num_elements() const { return rows.size() * columns.size(); }
};
// Heads of all shards together.
struct HeadCounts {
  std::int64_t heads = 0, kv_heads = 0;
};
ShardSlice slice_of(const std::vector<std::int64_t>& shape, Division division, const Partition& partition,
                    HeadCounts all, int tp_rank);

}  // namespace magister
