// Rows of the parameter table for linear attention, up to the heads; the output product is as in other layers.
// Source: transformers' Qwen3NextGatedDeltaNet and Qwen3_5GatedDeltaNet.
#include "magister/model/parameter_table.h"

namespace magister {

std::vector<LayerParameter> delta_parameters(const ModelConfig& config) {
  using Layer = TensorNames::Layer;
  using enum Division;
  constexpr FusedProduct kQkv = FusedProduct::kQkv;
  const DeltaConfig& delta = *config.delta;
  const std::int64_t D = config.hidden_size, H = delta.value_heads, Q = delta.key_heads * delta.key_dim,
                     V = H * delta.value_dim, W = delta.taps;
  std::vector<LayerParameter> all = {
      {&Layer::q_proj, "linear_attn.in_proj_qkv.weight", "", {Q, D}, kKvHeadRows, kQkv},
      {&Layer::k_proj, "linear_attn.in_proj_qkv.weight", "", {Q, D}, kKvHeadRows, kQkv},
      {&Layer::v_proj, "linear_attn.in_proj_qkv.weight", "", {V, D}, kHeadRows, kQkv},
      {&Layer::attention_gate, "linear_attn.in_proj_z.weight", "", {V, D}, kHeadRows, FusedProduct::kAttentionGate},
      {&Layer::delta_strength, "linear_attn.in_proj_b.weight", "", {H, D}, kHeadRows},
      {&Layer::delta_decay, "linear_attn.in_proj_a.weight", "", {H, D}, kHeadRows},
      {&Layer::delta_conv_q, "linear_attn.conv1d.weight", "", {Q, 1, W}, kKvHeadRows},
      {&Layer::delta_conv_k, "linear_attn.conv1d.weight", "", {Q, 1, W}, kKvHeadRows},
      {&Layer::delta_conv_v, "linear_attn.conv1d.weight", "", {V, 1, W}, kHeadRows},
      {&Layer::delta_rate, "linear_attn.A_log", "", {H}, kHeads},
      {&Layer::delta_bias, "linear_attn.dt_bias", "", {H}, kHeads},
      {&Layer::delta_norm, "linear_attn.norm.weight", "", {delta.value_dim}}};
  // Rows [first, last) of `all` are in one tensor. In turn: those of each key head and its value heads.
  const auto join = [&](std::size_t first, std::size_t last, bool in_turn, const char* name) {
    std::int64_t sum = 0, step = 0;
    for (std::size_t i = first; i < last; ++i) step += all[i].shape[0] / delta.key_heads;
    for (std::size_t i = first; i < last; ++i) {
      LayerParameter& row = all[i];
      row.hf = name;
      row.first_row = sum;
      row.group_rows = in_turn ? row.shape[0] / delta.key_heads : 0;
      row.group_step = in_turn ? step : 0;
      sum += in_turn ? row.group_rows : row.shape[0];
      row.stored = row.shape;
      row.stored[0] = in_turn ? step * delta.key_heads : Q + Q + V;
    }
  };
  join(0, delta.by_key_head ? 4 : 3, delta.by_key_head,
       delta.by_key_head ? "linear_attn.in_proj_qkvz.weight" : "linear_attn.in_proj_qkv.weight");
  if (delta.by_key_head) join(4, 6, true, "linear_attn.in_proj_ba.weight");
  join(6, 9, false, "linear_attn.conv1d.weight");
  return all;
}

}  // namespace magister
