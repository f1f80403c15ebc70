// The fast path of a mixture of experts, in three steps over the whole batch: the router chooses experts for every
// tile's tokens, every expert multiplies the tokens that chose it, and every token adds up the outputs of its experts.
#include "model/cpu/experts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "magister/model/cpu/cpu_kernels.h"
#include "model/cpu/block_norms.h"

namespace magister {
namespace {

constexpr std::int64_t kExpertRows = LayerBuffers::kTileRows;

// At most kExpertRows rows of one expert.
struct Chunk {
  std::int64_t expert, begin, end;
};

}  // namespace

void Experts::route(const float* hidden_TD, std::int64_t num_tokens, LayerBuffers& buffers, ThreadPool& pool) const {
  const std::int64_t D = shape_.hidden_size, R = shape_.experts_per_token;
  const RouterRule rule = shape_.router_rule();
  const std::int64_t L = rule.logits();
  const float* bias = weights_.choice_bias_X.defined() ? weights_.choice_bias_X.const_data_ptr<float>() : nullptr;
  const float* scales = weights_.scales_X.defined() ? weights_.scales_X.const_data_ptr<float>() : nullptr;
  pool.run((num_tokens + kExpertRows - 1) / kExpertRows, [&](std::int64_t tile, int thread) {
    const std::int64_t begin = tile * kExpertRows, rows = std::min(kExpertRows, num_tokens - begin);
    float* normed_RD = buffers.scratch_of(thread);
    float* logits_RL = normed_RD + rows * D;
    const float* input_RD = block_input(router_norms(), shape_.rms_norm_eps, hidden_TD + begin * D, normed_RD, rows, D);
    linear_tile(input_RD, D, rows, weights_.router, logits_RL, L, false);
    for (std::int64_t r = 0; r < rows; ++r) {
      auto* experts = buffers.experts_Tk.data_ptr<std::int32_t>() + (begin + r) * R;
      auto* weights = buffers.expert_weights_Tk.data_ptr<float>() + (begin + r) * R;
      choose_experts(rule, logits_RL + r * L, bias, experts, weights);
      for (std::int64_t i = 0; scales != nullptr && i < R; ++i) weights[i] *= scales[experts[i]];
    }
  });
}

void Experts::run(const float* hidden_TD, std::int64_t num_tokens, LayerBuffers& buffers, float* out_TD,
                  bool accumulate, ThreadPool& pool) const {
  const std::int64_t D = shape_.hidden_size, k = shape_.experts_per_token;
  route(hidden_TD, num_tokens, buffers, pool);
  // The buffers are for all tokens of a pass; its last layer may have fewer.
  const ExpertGroups grouping = group_by_expert(buffers.experts_Tk.narrow(0, 0, num_tokens), shape_.num_experts);
  std::vector<Chunk> chunks;
  for (std::int64_t x = 0; x < shape_.num_experts; ++x) {
    const std::int64_t stop = grouping.first[static_cast<std::size_t>(x) + 1];
    for (std::int64_t row = grouping.first[static_cast<std::size_t>(x)]; row < stop; row += kExpertRows)
      chunks.push_back({x, row, std::min(row + kExpertRows, stop)});
  }
  float* rows_ND = buffers.expert_rows_ND.data_ptr<float>();
  const bool weighs_inputs = shape_.router.weighs_inputs;
  const auto weight_of = [&](std::int64_t entry) { return buffers.expert_weights_Tk.const_data_ptr<float>()[entry]; };
  const auto multiply = [&](const Chunk& chunk, int thread, ThreadPool* shared) {
    const std::int64_t rows = chunk.end - chunk.begin;
    float* gathered_RD = buffers.gathered_of(thread);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t token = grouping.entry[static_cast<std::size_t>(chunk.begin + r)] / k;
      std::memcpy(gathered_RD + r * D, hidden_TD + token * D, static_cast<std::size_t>(D) * sizeof(float));
    }
    // The norm is computed again: D operations per row are little compared with the expert's 6 D F.
    block_input(weights_.norms, shape_.rms_norm_eps, gathered_RD, gathered_RD, rows, D);
    for (std::int64_t r = 0; weighs_inputs && r < rows; ++r)
      cpu_kernels().scale(gathered_RD + r * D, weight_of(grouping.entry[static_cast<std::size_t>(chunk.begin + r)]), D);
    weights_.experts[static_cast<std::size_t>(chunk.expert)].run(gathered_RD, 0, rows, buffers, thread,
                                                                 rows_ND + chunk.begin * D, false, shared);
  };
  const auto num_chunks = static_cast<std::int64_t>(chunks.size());
  if (num_chunks < pool.num_threads()) {  // few tokens: the threads share each product; the bits are the same
    for (const Chunk& chunk : chunks) multiply(chunk, 0, &pool);
  } else {
    pool.run(num_chunks, [&](std::int64_t index, int thread) {
      multiply(chunks[static_cast<std::size_t>(index)], thread, nullptr);
    });
  }
  pool.run((num_tokens + kExpertRows - 1) / kExpertRows, [&](std::int64_t tile, int thread) {
    float* sum_D = buffers.scratch_of(thread);
    for (std::int64_t t = tile * kExpertRows; t < std::min((tile + 1) * kExpertRows, num_tokens); ++t) {
      std::fill(sum_D, sum_D + D, 0.0f);
      for (std::int64_t i = t * k; i < (t + 1) * k; ++i) {
        const float weight = weighs_inputs ? 1.0f : weight_of(i);
        const float* row = rows_ND + grouping.row_of[static_cast<std::size_t>(i)] * D;
        for (std::int64_t d = 0; d < D; ++d) sum_D[d] += weight * row[d];
      }
      float* out = out_TD + t * D;
      for (std::int64_t d = 0; d < D; ++d) out[d] = accumulate ? out[d] + sum_D[d] : sum_D[d];
    }
  });
}

}  // namespace magister
