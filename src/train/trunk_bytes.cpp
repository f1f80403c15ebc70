// Memory that passes of CPUs keep, for plans; see trunk.h. Counted from the operations of trunk.cpp and of the blocks.
#include "train/trunk_bytes.h"

#include <algorithm>

#include "magister/model/rope.h"
#include "magister/train/trunk.h"
#include "train/delta_attention.h"

namespace magister {

namespace {

// Numbers that attention keeps for each score: steps of its formula, or a bias.
double kept_a_score(const ModelConfig& config, std::int64_t layer) {
  if (config.attn_logit_softcapping > 0 || config.has_sinks(layer)) return 2;
  return config.alibi_max > 0 ? 1 : 0;
}

// Numbers per token that attention keeps in a layer.
struct AttentionNumbers {
  double kept = 0;    // in f32, whatever the products' dtype
  double inputs = 0;  // of products, each once, without those of q, k and v where these come from the stream's norm
  double copies = 0;  // of products, once for each product that reads them
};

// E: numbers of a head.
AttentionNumbers attention_numbers(const ModelConfig& config, double E) {
  const double D = static_cast<double>(config.hidden_size), heads = static_cast<double>(config.num_attention_heads),
               H = heads * E;
  // q, and k and v with a head for each of q's, and the output by sequence; then the heads' outputs joined.
  if (!config.latent) return {4 * H, H, 3 * D + H};
  const LatentConfig& latent = *config.latent;
  // The short vectors before their norms, and after them, where the second products read them. v is padded to a head of
  // q, or where it is as long a part of the product that also holds the keys.
  const auto V = static_cast<double>(latent.value_dim), N = static_cast<double>(latent.nope_dim);
  const double shorts = static_cast<double>(latent.query_rank + latent.rank), joined = heads * V,
               values = V < E ? H : heads * (N + V);
  return {3 * H + values + shorts, shorts + joined, 2 * D + shorts + joined};
}

// The same with linear attention: the products of queries, keys and values, of the gate and of the steps read the
// stream's norm.
AttentionNumbers delta_numbers(const ModelConfig& config) {
  const auto outputs = static_cast<double>(config.delta->value_heads * config.delta->value_dim);
  return {delta_bytes(config) / 4, outputs, 4 * static_cast<double>(config.hidden_size) + outputs};
}

// Bytes per token that the CPU's operations keep in a layer. In f32 a product keeps its input, shared by all products
// that read it; in bf16 each keeps its own rounded copy, and inputs that nothing else reads are freed.
double layer_bytes(const ModelConfig& config, std::int64_t longest, std::int64_t layer, const TrunkKeeps& keeps) {
  const bool sparse = config.is_sparse(layer);
  const double D = static_cast<double>(config.hidden_size), E = static_cast<double>(config.head_dim_of(layer)),
               H = static_cast<double>(config.num_attention_heads) * E,
               F = static_cast<double>(config.intermediate_size * config.mlp_widths_of(layer)),
               K = static_cast<double>(config.kv_heads_of(layer)) * E;
  const bool in_f32 = !keeps.bf16 || keeps.adapted, linear = config.is_linear(layer);
  const AttentionNumbers attention = linear ? delta_numbers(config) : attention_numbers(config, E);
  // The stream twice, and the inputs of output norms.
  double bytes = 4 * 4 * D + 4 * attention.kept + 4 * altup_numbers(config, layer);
  // Inputs of products: the norms' rows for q, k and v, and for gate and up, the heads, and the gate's output.
  if (in_f32) bytes += 4 * (2 * D + attention.inputs);
  if (keeps.bf16) bytes += 2 * (2 * D + attention.copies);
  if (!linear && (config.qk_norm || config.qk_norm_of_all_heads)) bytes += 4 * (H + K);
  // A gate, its function, and the outputs of attention before it.
  if (!linear && config.attention_gate != AttentionGate::kNone) bytes += 4 * 3 * H;
  // A product of the stream, its activation, the vector and their product; the output before its norm, and the stream.
  const double P = static_cast<double>(config.per_layer_width);
  if (P > 0) bytes += 4 * (4 * P + 2 * D) + (keeps.bf16 ? 2 * (P + D) : 0);
  if (config.layer_scalar) bytes += 4 * D;
  if (!linear)
    bytes += 4 * kept_a_score(config, layer) * static_cast<double>(longest) *
             static_cast<double>(config.num_attention_heads);
  // With an indexer: a float for each visible key, a mark for each chosen one.
  if (config.latent && config.latent->indexer) bytes += 5 * static_cast<double>(longest);
  // Gate and up, with another activation than SiLU also its output, or up alone, and the input of the last product.
  const double gate = !config.gated_mlp ? 1 : config.activation == Activation::kSilu ? 2 : 3;
  if (!sparse) return bytes + 4 * gate * F + (in_f32 ? 4 * F : 0) + (keeps.bf16 ? 2 * F : 0);
  if (config.dense_beside_experts) bytes += 4 * (4 * D + gate * F) + (in_f32 ? 4 * F : 0) + (keeps.bf16 ? 2 * F : 0);
  // Rows of every chosen expert, its products before the activation and after it, and its output.
  return bytes + 4 * (static_cast<double>(config.experts_a_token()) *
                          (3 * D + 4 * static_cast<double>(config.moe_intermediate_size)) +
                      4 * static_cast<double>(config.all_experts()));
}

}  // namespace

double widest_mlp(const ModelConfig& config) {
  std::int64_t widths = 1;
  for (const std::int64_t of_layer : config.mlp_widths) widths = std::max(widths, of_layer);
  return static_cast<double>(config.intermediate_size * widths);
}

double stream_numbers(const ModelConfig& config) {
  return static_cast<double>(config.hidden_size * (config.altup ? config.altup->inputs : 1));
}

double altup_numbers(const ModelConfig& config, std::int64_t layer) {
  const double D = static_cast<double>(config.hidden_size), A = stream_numbers(config) / D;
  double numbers = 0;
  // Its input, and the corrected stream; the two inputs of the router before and after their norms, the change, and the
  // input of vectors by layer; the router's outputs and coefficients.
  if (config.altup) numbers += (A - 1) * D + A * D + 6 * D + A * A + 4 * A;
  if (config.laurel_rank > 0) numbers += D + static_cast<double>(config.laurel_rank);
  if (config.gate_sparsity_of(layer) > 0)  // the gates before their limit
    numbers += static_cast<double>(config.intermediate_size * config.mlp_widths_of(layer));
  return numbers;
}

double altup_end_numbers(const ModelConfig& config) {
  const double D = static_cast<double>(config.hidden_size), all = stream_numbers(config);
  return config.altup ? 2 * all + 3 * (all - D) : 0;
}

double bytes_of_vectors(const ModelConfig& config) {
  return 4 * 6 * static_cast<double>(config.num_hidden_layers * config.per_layer_width);
}

double bytes_of_score_steps(const ModelConfig& config, std::int64_t longest) {
  if (config.attn_logit_softcapping == 0 && !config.attention_sinks) return 0;
  return 4 * 2 * static_cast<double>(longest * config.num_attention_heads);
}

double bytes_of_choices(const ModelConfig& config, std::int64_t longest, bool recompute) {
  return recompute && config.latent && config.latent->indexer ? static_cast<double>(longest * config.num_hidden_layers)
                                                              : 0;
}

std::uint64_t trunk_bytes(const ModelConfig& config, std::int64_t num_tokens, std::int64_t longest,
                          const TrunkKeeps& keeps) {
  const double T = static_cast<double>(num_tokens), D = static_cast<double>(config.hidden_size), F = widest_mlp(config);
  // Besides these: hidden states and gradients of the stream, and what a layer's widest operations read and write.
  const double streams = config.altup ? 3 * stream_numbers(config) : 0;
  const double passing = 4 * (4 * D + (keeps.bf16 ? 8 : 6) * std::max(F, D) + streams) +
                         (config.latent && config.latent->indexer ? 16 * static_cast<double>(longest) : 0) +
                         (config.delta ? delta_passing_bytes(config) : 0);
  const double layers = bytes_of_layers(config, keeps.recompute,
                                        [&](std::int64_t layer) { return layer_bytes(config, longest, layer, keeps); });
  // The rotary rows of all tokens, and the tables from which they are copied.
  const double rotary = 2 * static_cast<double>(rope_row_bytes(config));
  return static_cast<std::uint64_t>(T *
                                    (layers + passing + bytes_of_score_steps(config, longest) + rotary +
                                     bytes_of_vectors(config) + bytes_of_choices(config, longest, keeps.recompute)));
}

}  // namespace magister
