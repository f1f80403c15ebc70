// Weights of linear attention on one shard: its value heads and the key heads that these use.
// Source: transformers' Qwen3NextGatedDeltaNet and Qwen3_5GatedDeltaNet.
#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/model/parameter_table.h"
#include "magister/model/weights.h"
#include "model/cpu/kept_codes.h"

namespace magister {

void WeightSource::add_rows(std::vector<RowBlock>& blocks, std::int64_t layer, std::string TensorNames::Layer::* weight,
                            IndexRange rows) const {
  const std::vector<LayerParameter> table = layer_parameters(description_.config, layer);
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const LayerParameter& row) { return row.expert < 0 && row.name == weight; });
  MAGISTER_ASSERT(found != table.end());
  const auto first = static_cast<std::uint64_t>(found->first_row),
             group = found->group_rows > 0 ? static_cast<std::uint64_t>(found->group_rows) : rows.end,
             step = found->group_rows > 0 ? static_cast<std::uint64_t>(found->group_step) : rows.end;
  for (std::uint64_t begin = rows.begin; begin < rows.end;) {
    const std::uint64_t end = std::min(rows.end, (begin / group + 1) * group);
    const std::uint64_t place = first + begin / group * step + begin % group;
    const std::int64_t output = blocks.empty() ? 0 : blocks.back().output + blocks.back().outputs();
    blocks.push_back({names_of(layer).*weight, {place, place + end - begin}, output});
    begin = end;
  }
}

namespace {

IndexRange rows_of_heads(IndexRange heads, std::int64_t rows) {
  return {heads.begin * static_cast<std::uint64_t>(rows), heads.end * static_cast<std::uint64_t>(rows)};
}

}  // namespace

Linear WeightSource::load_delta_proj(std::int64_t layer) {
  using Layer = TensorNames::Layer;
  const DeltaConfig& delta = *description_.config.delta;
  const Partition part = part_of(layer);
  std::vector<RowBlock> blocks;
  add_rows(blocks, layer, &Layer::q_proj, rows_of_heads(part.kv_heads, delta.key_dim));
  add_rows(blocks, layer, &Layer::k_proj, rows_of_heads(part.kv_heads, delta.key_dim));
  add_rows(blocks, layer, &Layer::v_proj, rows_of_heads(part.heads, delta.value_dim));
  const auto D = static_cast<std::uint64_t>(description_.config.hidden_size);
  return load_product(blocks, blocks.back().output + blocks.back().outputs(), {0, D}, D);
}

DeltaParts WeightSource::load_delta(std::int64_t layer) {
  using Layer = TensorNames::Layer;
  const DeltaConfig& delta = *description_.config.delta;
  const Partition part = part_of(layer);
  const TensorNames::Layer& names = names_of(layer);
  // Rows of these weights one below the other.
  const auto joined = [&](std::initializer_list<std::pair<std::string Layer::*, IndexRange>> weights,
                          std::int64_t width) {
    std::vector<RowBlock> blocks;
    for (const auto& [name, rows] : weights) add_rows(blocks, layer, name, rows);
    at::Tensor out_RW = allocate({blocks.back().output + blocks.back().outputs(), width}, at::kFloat);
    for (const RowBlock& block : blocks)
      read(block.tensor, block.rows, {0, static_cast<std::uint64_t>(width)},
           out_RW.narrow(0, block.output, block.outputs()));
    return out_RW;
  };
  const IndexRange keys = rows_of_heads(part.kv_heads, delta.key_dim);
  DeltaParts out;
  out.steps = {joined({{&Layer::delta_strength, part.heads}, {&Layer::delta_decay, part.heads}},
                      description_.config.hidden_size),
               {}};
  out.conv_CW = joined({{&Layer::delta_conv_q, keys},
                        {&Layer::delta_conv_k, keys},
                        {&Layer::delta_conv_v, rows_of_heads(part.heads, delta.value_dim)}},
                       delta.taps);
  out.rate_H = load_vector(names.delta_rate, part.heads).exp_();
  out.bias_H = load_vector(names.delta_bias, part.heads);
  out.norm_V = load_vector(names.delta_norm, {0, static_cast<std::uint64_t>(delta.value_dim)});
  return out;
}

}  // namespace magister
