// Sequences are computed in pieces of kPiece tokens: the changes that a piece's tokens make solve a triangular system,
// so that autograd keeps a state for each piece instead of one for each token.
// Source: Yang et al., arXiv 2406.06484, section 3.2, with the decays of arXiv 2412.06464.
// Legend: L tokens of a sequence, R of a piece, H value heads, K key heads, E key_dim, V value_dim, C channels.
#include "train/delta_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/fused_ops.h"

namespace magister {
namespace {

using Names = TensorNames::Layer;
constexpr std::int64_t kPiece = 64;

// SiLU of the convolution of one sequence. weight_CW: the last column is that of the token itself.
at::Tensor convolved(const at::Tensor& x_LC, const at::Tensor& weight_CW) {
  const std::int64_t L = x_LC.size(0), W = weight_CW.size(1);
  const at::Tensor padded = at::constant_pad_nd(x_LC, {0, 0, W - 1, 0});
  at::Tensor sum_LC = padded.narrow(0, 0, L) * weight_CW.select(1, 0);
  for (std::int64_t tap = 1; tap < W; ++tap) sum_LC = sum_LC + padded.narrow(0, tap, L) * weight_CW.select(1, tap);
  return at::silu(sum_LC);
}

at::Tensor divided_by_length(const at::Tensor& x_LKE) {
  return x_LKE * at::rsqrt(x_LKE.square().sum(-1, true) + DeltaConfig::kLengthEps);
}

// A piece of a sequence, heads first. rates_HR: logarithms of the decays.
struct Piece {
  at::Tensor q_HRE, k_HRE, v_HRV, strengths_HR, rates_HR;
};

// Returns the outputs of a piece, [H, R, V], and goes on to the state behind it.
at::Tensor run_piece(const Piece& piece, at::Tensor& state_HEV) {
  const std::int64_t R = piece.q_HRE.size(1);
  const at::Tensor sums_HR = piece.rates_HR.cumsum(1), since_HR1 = sums_HR.exp().unsqueeze(2),
                   later_RR = at::ones({R, R}, at::kBool).triu(1);
  // Entry (i, j): the decay from token j to token i >= j.
  const at::Tensor decays_HRR = (sums_HR.unsqueeze(2) - sums_HR.unsqueeze(1))
                                    .masked_fill(later_RR, -std::numeric_limits<double>::infinity())
                                    .exp();
  const at::Tensor strengths_HR1 = piece.strengths_HR.unsqueeze(2), keys_HER = piece.k_HRE.transpose(1, 2);
  const at::Tensor system_HRR = at::matmul(piece.k_HRE * strengths_HR1, keys_HER) * decays_HRR;
  const at::Tensor known_HRV = strengths_HR1 * (piece.v_HRV - since_HR1 * at::matmul(piece.k_HRE, state_HEV));
  // Only the part below the diagonal is read; the diagonal counts as ones.
  const at::Tensor changes_HRV = at::linalg_solve_triangular(system_HRR, known_HRV, false, true, true);
  const at::Tensor out_HRV = since_HR1 * at::matmul(piece.q_HRE, state_HEV) +
                             at::matmul(at::matmul(piece.q_HRE, keys_HER) * decays_HRR, changes_HRV);
  const at::Tensor last_H1 = sums_HR.narrow(1, R - 1, 1), left_HR1 = (last_H1 - sums_HR).exp().unsqueeze(2);
  state_HEV =
      state_HEV * last_H1.exp().unsqueeze(2) + at::matmul((piece.k_HRE * left_HR1).transpose(1, 2), changes_HRV);
  return out_HRV;
}

}  // namespace

at::Tensor delta_heads(const at::Tensor& input_TD, const LayerWeights& weights, const LayerShape& shape,
                       const std::vector<std::int64_t>& cu_seqlens) {
  const std::int64_t H = shape.heads, K = shape.kv_heads, E = shape.head_dim, V = shape.value_dim();
  const std::vector<at::Tensor> parts = weights.linear(input_TD, {{&Names::q_proj, nullptr},
                                                                  {&Names::k_proj, nullptr},
                                                                  {&Names::v_proj, nullptr},
                                                                  {&Names::attention_gate, nullptr}});
  const std::vector<at::Tensor> steps =
      weights.linear(input_TD, {{&Names::delta_strength, nullptr}, {&Names::delta_decay, nullptr}});
  const at::Tensor all_TC = at::cat({parts[0], parts[1], parts[2]}, 1),
                   conv_CW = weights(&Names::delta_conv_q).flatten(1),  // one tensor for all channels
      strengths_HT = at::sigmoid(steps[0]).t(),
                   rates_HT =
                       (-weights(&Names::delta_rate).exp() * at::softplus(steps[1] + weights(&Names::delta_bias))).t();
  std::vector<at::Tensor> outputs;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const std::int64_t begin = cu_seqlens[s], length = cu_seqlens[s + 1] - begin;
    const auto heads = convolved(all_TC.narrow(0, begin, length), conv_CW).split_with_sizes({K * E, K * E, H * V}, 1);
    const auto of_keys = [&](const at::Tensor& x_LX) {
      return divided_by_length(x_LX.view({length, K, E})).repeat_interleave(H / K, 1).transpose(0, 1);
    };
    const at::Tensor q_HLE = of_keys(heads[0]) / std::sqrt(static_cast<double>(E)), k_HLE = of_keys(heads[1]),
                     v_HLV = heads[2].view({length, H, V}).transpose(0, 1);
    at::Tensor state_HEV = at::zeros({H, E, V}, input_TD.options().dtype(at::kFloat));
    for (std::int64_t first = 0; first < length; first += kPiece) {
      const std::int64_t rows = std::min(kPiece, length - first);
      outputs.push_back(
          run_piece({q_HLE.narrow(1, first, rows), k_HLE.narrow(1, first, rows), v_HLV.narrow(1, first, rows),
                     strengths_HT.narrow(1, begin + first, rows), rates_HT.narrow(1, begin + first, rows)},
                    state_HEV)
              .transpose(0, 1));
    }
  }
  const at::Tensor normed_XV =
      fused_rms_norm(at::cat(outputs, 0).reshape({-1, V}), weights(&Names::delta_norm), shape.rms_norm_eps);
  return fused_silu_product(parts[3].reshape({-1, V}), normed_XV).view({input_TD.size(0), H * V});
}

double delta_bytes(const ModelConfig& config) {
  const DeltaConfig& delta = *config.delta;
  const double H = static_cast<double>(delta.value_heads), E = static_cast<double>(delta.key_dim),
               V = static_cast<double>(delta.value_dim), R = static_cast<double>(kPiece),
               C = 2 * static_cast<double>(delta.key_heads) * E + H * V, W = static_cast<double>(delta.taps);
  // Channels: before and after the convolution, its products with the taps, its sum, the padded rows. Queries and keys
  // of each value head: divided, repeated, times a strength and two decays. Values, what is known of them, changes and
  // outputs, before and after norm and gate. Squares of a piece: differences, decays, products and the system. States.
  return 4 * ((4 + W) * C + H * (10 * E + 12 * V + 8 * R + 3 * E * V / R + 8));
}

double delta_passing_bytes(const ModelConfig& config) {
  const DeltaConfig& delta = *config.delta;
  const double H = static_cast<double>(delta.value_heads), E = static_cast<double>(delta.key_dim),
               V = static_cast<double>(delta.value_dim), R = static_cast<double>(kPiece),
               C = 2 * static_cast<double>(delta.key_heads) * E + H * V;
  return 4 * (2 * C + H * (2 * E + 2 * V + 2 * R));
}

}  // namespace magister
