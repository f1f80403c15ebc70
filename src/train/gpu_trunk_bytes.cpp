// Memory that passes of GPU code keep, for plans; see trunk.h. Counted from the operations of trained_attention.cpp,
// sequence_attention.cpp, latent_heads.cpp, trained_mlp.cpp and trained_experts.cpp, and what those save for the way
// back.
#include <algorithm>

#include "magister/model/layer_shape.h"
#include "magister/model/partition.h"
#include "magister/model/rope.h"
#include "magister/train/trunk.h"
#include "train/alibi_columns.h"
#include "train/gpu_attention.h"
#include "train/sequence_attention.h"
#include "train/trunk_bytes.h"

namespace magister {
namespace {

// A layer, and numbers that several of its counts need.
struct CountedLayer {
  const ModelConfig& config;
  const LayerShape shape;
  const bool sparse, sinks, bf16;
  const double D, H, K, E, V, L;  // L: tokens of the longest sequence
  const double x;                 // bytes of a number that only products read

  CountedLayer(const ModelConfig& config, std::int64_t layer, std::int64_t longest, bool bf16)
      : config(config),
        shape(shape_of(config, partition_for(config, 0, 1), layer)),
        sparse(config.is_sparse(layer)),
        sinks(config.has_sinks(layer)),
        bf16(bf16),
        D(static_cast<double>(config.hidden_size)),
        H(static_cast<double>(shape.heads)),
        K(config.latent ? H : static_cast<double>(shape.kv_heads)),
        E(static_cast<double>(shape.head_dim)),
        V(static_cast<double>(shape.value_dim())),
        L(static_cast<double>(longest)),
        x(bf16 ? 2 : 4) {}

  // Products whose rows are a norm of the stream make them again in bf16.
  bool makes_rows_again() const {
    return bf16 && config.norm_kind == NormKind::kRms && config.norm_placement != NormPlacement::kOutput;
  }
  double norms() const;
  double attention() const;
  double scores() const;
  double heads_before_scores() const;
  double gate() const;
  double mlp() const;
  double dense(double F) const;
  double experts() const;
  double vectors() const;
  double all() const { return norms() + attention() + gate() + mlp() + vectors(); }
};

// The stream before each block, rows of the blocks' products, and inputs of the norms of the blocks' outputs.
double CountedLayer::norms() const {
  double bytes = 4 * 2 * D;
  const bool again = makes_rows_again(), gated = config.attention_gate != AttentionGate::kNone;
  if (!again || config.latent || gated) bytes += x * D;
  if (!again && bf16 && gated) bytes += x * D;
  // A router reads rows in f32.
  const bool again_for_mlp = again && !config.parallel_norms;
  if (sparse) {
    bytes += 4 * D;
  } else if (!again_for_mlp) {
    bytes += x * D;
  }
  if (config.norm_placement != NormPlacement::kInput) bytes += 4 * 2 * D;
  if (sparse && config.sparse_norm) bytes += 4 * D;
  return bytes;
}

// Norms and limits of queries, keys and values keep their inputs.
double CountedLayer::heads_before_scores() const {
  if (shape.latent) {
    const double shorts = static_cast<double>(shape.latent->query_rank + shape.latent->rank);
    return (4 + x) * shorts + (bf16 ? 0 : 4 * static_cast<double>(shape.latent->token_width()));
  }
  const double own_K = shape.has_own_kv ? K : 0;
  double bytes = 0;
  if (config.qk_norm || config.qk_norm_of_all_heads || config.qk_layer_norm || shape.qk_l2_norm)
    bytes += 4 * (H + own_K) * E;
  if (config.v_norm) bytes += 4 * own_K * V;
  if (shape.clip_qkv > 0) bytes += 4 * ((H + own_K) * E + own_K * V);
  return bytes + (config.shared_kv_layers > 0 ? 4 * own_K * (E + V) : 0);  // kept for layers that read them
}

double CountedLayer::scores() const {
  const LayerShape wide = kernel_shape(shape, bf16);
  const double W = static_cast<double>(wide.head_dim), heads = shape.alibi_slopes.empty() ? K : H;
  const bool capped = shape.attention_softcap > 0, chooses = shape.latent && shape.latent->indexer,
             flash = bf16 && flash_trains(wide);
  if (flash && !chooses) return 2 * ((H + 2 * heads) * W + H * W) + 4 * H + (W == V ? 0 : 2 * H * V);
  // Queries, keys and values of all heads, the output, and what its product reads.
  double bytes = 4 * (4 * H * W) + x * H * V;
  if (capped || sinks) return bytes + 4 * 2 * L * H;
  if (chooses) bytes += (4 + 1) * L;  // a float for each visible key, a mark for each chosen one
  return bytes + 4 * H;
}

double CountedLayer::attention() const { return heads_before_scores() + scores(); }

// Attention's outputs before the gate, its numbers and their function, and what the last product reads.
double CountedLayer::gate() const {
  if (config.attention_gate == AttentionGate::kNone) return 0;
  return 4 * (2 * static_cast<double>(shape.gate_numbers) + H * V) + x * H * V;
}

// The products before the activation, and what the last product reads.
double CountedLayer::dense(double F) const {
  if (!config.gated_mlp) return x * 2 * F;
  return x * (bf16 ? 2 : 3) * F;
}

// Rows of each chosen expert, its two products and what the last product reads, and its output.
double CountedLayer::experts() const {
  const double shared = static_cast<double>(shape.num_shared_experts),
               chosen = static_cast<double>(shape.experts_per_token) - shared,
               columns =
                   chosen * static_cast<double>(shape.expert_mlp) + shared * static_cast<double>(shape.shared_mlp);
  return (chosen + shared) * (4 + 4 + 4) * D + (4 * 2 + x) * columns +
         4 * 4 * static_cast<double>(config.all_experts());
}

double CountedLayer::mlp() const {
  const double F = static_cast<double>(shape.mlp);
  if (!sparse) return dense(F);
  return experts() + (config.dense_beside_experts ? dense(F) + (x + 4 * 4) * D : 0);
}

// A product of the stream, its activation, the vector and their product; the output before its norm, and the stream.
double CountedLayer::vectors() const {
  const double P = static_cast<double>(config.per_layer_width);
  return P > 0 ? 4 * (3 * P + 2 * D) + x * (P + D) : 0;
}

}  // namespace

std::uint64_t gpu_trunk_bytes(const ModelConfig& config, std::int64_t num_tokens, std::int64_t longest, bool recompute,
                              bool bf16) {
  const double T = static_cast<double>(num_tokens), D = static_cast<double>(config.hidden_size), F = widest_mlp(config);
  double widest = std::max(config.xielu ? 3 * F : F, D);  // the parts of xIELU's formula are there at once
  const double layers = bytes_of_layers(config, recompute, [&](std::int64_t number) {
    const CountedLayer layer(config, number, longest, bf16);
    widest = std::max(widest, 2 * layer.H * std::max(layer.E, layer.V));
    return layer.all() + 4 * altup_numbers(config, number);
  });
  // Besides these: gradients of the stream, and of what a layer's widest operations read and write.
  const double streams = config.altup ? 3 * stream_numbers(config) : 0,
               passing = 4 * (4 * D + streams) + (bf16 ? 2 : 4) * 4 * widest;
  // The rotary rows of all tokens, the columns of ALiBi, and the embeddings before their norm.
  const double rows =
      static_cast<double>(rope_row_bytes(config)) +
      (config.alibi_max > 0 ? 4.0 * static_cast<double>(config.num_attention_heads * kAlibiColumns) : 0) +
      (config.embedding_norm ? 4 * D : 0);
  // Without soft caps flash attention computes sinks in bf16.
  const double steps = bf16 && config.attn_logit_softcapping == 0 ? 0 : bytes_of_score_steps(config, longest);
  return static_cast<std::uint64_t>(
      T * (layers + passing + steps + rows + bytes_of_vectors(config) + bytes_of_choices(config, longest, recompute)));
}

}  // namespace magister
