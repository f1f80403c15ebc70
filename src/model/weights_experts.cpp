// Weights of a mixture of experts on one shard: a router, and a part of the columns of every expert. Files hold one
// tensor per expert, or all experts as rows of one tensor (GGUF), or as columns of one tensor with gate and up in turn
// (gpt-oss).
#include <ATen/ATen.h>

#include "magister/model/parameter_table.h"
#include "magister/model/weights.h"
#include "model/cpu/kept_codes.h"

namespace magister {
namespace {

// Entries `range` of a vector are stored at place, place + step, ...: returns the stored range from the first to the
// last of them.
IndexRange stepping(IndexRange range, std::uint64_t place, std::uint64_t step) {
  if (range.size() == 0) return {place, place};
  return {place + step * range.begin, place + step * (range.end - 1) + 1};
}

}  // namespace

Linear WeightSource::load_router(std::int64_t layer) {
  const ModelConfig& config = description_.config;
  const std::int64_t X = config.num_experts, gates = config.shared_expert_gate ? 1 : 0;
  Linear out{allocate({X + gates, config.hidden_size}, at::kFloat), {}};
  const IndexRange experts{0, static_cast<std::uint64_t>(X)},
      columns{0, static_cast<std::uint64_t>(config.hidden_size)};
  read(names_of(layer).router, experts, columns, out.weight_NK.narrow(0, 0, X));
  if (gates > 0) read(names_of(layer).shared_expert_gate, {0, 1}, columns, out.weight_NK.narrow(0, X, 1));
  out.bias_N = load_vector(names_of(layer).router_bias, experts);
  return out;
}

at::Tensor WeightSource::load_choice_bias(std::int64_t layer) {
  return load_vector(names_of(layer).router_choice_bias,
                     {0, static_cast<std::uint64_t>(description_.config.num_experts)});
}

RowBlock WeightSource::expert_rows(std::int64_t layer, const LayerParameter& row, IndexRange rows,
                                   std::int64_t output) const {
  RowBlock block{row.name_in(names_of(layer)), {}, output};
  const auto first = static_cast<std::uint64_t>(row.first_row), step = static_cast<std::uint64_t>(row.row_step);
  if (!description_.config.fused_experts || row.expert >= description_.config.num_experts) {
    block.rows = {first + rows.begin, first + rows.end};
    return block;
  }
  block.transposed = true;
  block.step = step;
  block.first_input = static_cast<std::uint64_t>(row.expert * row.shape.back());
  block.rows = stepping(rows, first % static_cast<std::uint64_t>(row.stored.back()), step);
  return block;
}

void WeightSource::read_expert_bias(std::int64_t layer, const LayerParameter& row, IndexRange range,
                                    const at::Tensor& out) {
  // A bias is a row in a table of all experts, or a vector of its own.
  const std::uint64_t number = row.stored.empty() ? 0 : static_cast<std::uint64_t>(row.expert);
  const std::uint64_t place = row.stored.empty() ? 0 : static_cast<std::uint64_t>(row.first_row % row.stored.back());
  const IndexRange stored = stepping(range, place, static_cast<std::uint64_t>(row.row_step));
  at::Tensor found_1R = at::empty({1, static_cast<std::int64_t>(stored.size())}, at::TensorOptions().dtype(at::kFloat));
  read(row.name_in(names_of(layer)), {number, number + 1}, stored, found_1R);
  out.copy_(found_1R.select(0, 0).slice(0, 0, std::nullopt, row.row_step));
}

Linear WeightSource::load_expert_gate_up_proj(std::int64_t layer, std::int64_t expert) {
  const IndexRange columns = columns_of(expert);
  const std::int64_t D = description_.config.hidden_size, f = static_cast<std::int64_t>(columns.size());
  const std::vector<LayerParameter> table = expert_parameters(description_.config, expert);
  std::vector<RowBlock> blocks;
  for (const LayerParameter& row : table) {
    if (row.product == FusedProduct::kGateUp)
      blocks.push_back(expert_rows(layer, row, columns, static_cast<std::int64_t>(blocks.size()) * f));
  }
  Linear out = load_product(blocks, 2 * f, {0, static_cast<std::uint64_t>(D)}, static_cast<std::uint64_t>(D));
  if (!description_.config.expert_bias) return out;
  out.bias_N = allocate({2 * f}, at::kFloat);
  using Expert = TensorNames::Layer::Expert;
  for (const LayerParameter& row : table) {
    if (row.expert_name == &Expert::gate_bias)
      read_expert_bias(layer, row, partition_.expert, out.bias_N.narrow(0, 0, f));
    if (row.expert_name == &Expert::up_bias)
      read_expert_bias(layer, row, partition_.expert, out.bias_N.narrow(0, f, f));
  }
  return out;
}

Linear WeightSource::load_expert_down_proj(std::int64_t layer, std::int64_t expert) {
  const std::int64_t D = description_.config.hidden_size;
  const IndexRange outputs{0, static_cast<std::uint64_t>(D)};
  Linear out;
  for (const LayerParameter& row : expert_parameters(description_.config, expert)) {
    if (row.product == FusedProduct::kDown) {
      const auto first = static_cast<std::uint64_t>(row.first_column);
      const bool is_shared = expert >= description_.config.num_experts;
      const IndexRange columns = columns_of(expert);
      out = load_product({expert_rows(layer, row, outputs, 0)}, D, {first + columns.begin, first + columns.end},
                         static_cast<std::uint64_t>(is_shared ? row.stored.back() : row.shape.back()));
    }
    if (row.expert_name != &TensorNames::Layer::Expert::down_bias || tp_rank_ > 0) continue;
    out.bias_N = allocate({D}, at::kFloat);
    read_expert_bias(layer, row, outputs, out.bias_N);
  }
  return out;
}

}  // namespace magister
