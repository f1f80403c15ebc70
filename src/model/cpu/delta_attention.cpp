// Linear attention by the gated delta rule on the fast path. A task takes a key head and its value heads over all rows
// of a sequence, in pieces of kDeltaRows: convolution, lengths, then the states, token by token. So the bits of a row
// depend neither on how a prompt is cut into passes nor on the other sequences.
// Source: see DeltaConfig. Legend: E key_dim, V value_dim, H value heads and K key heads of this shard, R rows of a
// piece, C channels: those of all queries, then of all keys, then of all values.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/plain_activation.h"
#include "model/cpu/attention.h"
#include "model/cpu/block_norms.h"
#include "model/cpu/decoder_layer.h"

namespace magister {
namespace {

constexpr int kSilu = static_cast<int>(Activation::kSilu);
constexpr auto kDeltaEps = static_cast<float>(DeltaConfig::kLengthEps);

float strength_of(float product) { return 1.0f / (1.0f + std::exp(-product)); }
float decay_of(float product, float bias, float rate) {
  const float x = product + bias, softplus = std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
  return std::exp(-rate * softplus);
}

// The inputs of the convolution: rows of this pass, and before them those that a cache has kept, or zeros.
struct ConvInputs {
  const float* rows_TC;
  const float* kept_WC;  // taps - 1 rows; nullptr: zeros
  const float* zeros_C;
  std::int64_t width, taps;
  const float* row(std::int64_t index) const {
    if (index >= 0) return rows_TC + index * width;
    return kept_WC == nullptr ? zeros_C : kept_WC + (taps - 1 + index) * width;
  }
};

// SiLU of the convolution of channels [first, first + count) in rows [begin, end).
void convolve_rows(const ConvInputs& inputs, const float* conv_WC, std::int64_t first, std::int64_t count,
                   std::int64_t begin, std::int64_t end, float* out_RN) {
  std::vector<const float*> rows(static_cast<std::size_t>(inputs.taps));
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t tap = 0; tap < inputs.taps; ++tap)
      rows[static_cast<std::size_t>(tap)] = inputs.row(row - inputs.taps + 1 + tap) + first;
    cpu_kernels().convolve(rows.data(), conv_WC + first, inputs.width, inputs.taps, count,
                           out_RN + (row - begin) * count);
  }
  cpu_kernels().activate_alone[kSilu](out_RN, count, out_RN, count, end - begin, count);
}

// Keeps the last taps - 1 inputs of channels [first, first + count).
void keep_inputs(const ConvInputs& inputs, std::int64_t rows, std::int64_t first, std::int64_t count, float* kept_WC) {
  for (std::int64_t tap = 0; tap + 1 < inputs.taps; ++tap)  // ascending: a row is read before it is written
    std::copy_n(inputs.row(rows - inputs.taps + 1 + tap) + first, count, kept_WC + tap * inputs.width + first);
}

}  // namespace

void Attention::project_delta(const float* input_RD, std::int64_t begin, std::int64_t end, LayerBuffers& buffers,
                              ThreadPool* pool) const {
  const std::int64_t steps = 2 * shape_.heads;
  linear_tile(input_RD, shape_.hidden_size, end - begin, weights_.delta->steps,
              buffers.steps_TS.data_ptr<float>() + begin * steps, steps, false, pool, buffers.kind);
}

namespace {

// Work memory of a task; its size is delta_scratch() in layer_buffers.cpp.
struct DeltaScratch {
  float *queries_RE, *keys_RE, *values_RV, *strengths_R, *decays_R;
  float* zeros_C;
  float* states;  // of the task's value heads, in a pass without a cache
  DeltaScratch(float* memory, const LayerShape& shape) {
    constexpr std::int64_t kRows = LayerBuffers::kDeltaRows;
    queries_RE = memory;
    keys_RE = queries_RE + kRows * shape.head_dim;
    values_RV = keys_RE + kRows * shape.head_dim;
    strengths_R = values_RV + kRows * shape.value_dim();
    decays_R = strengths_R + kRows;
    zeros_C = decays_R + kRows;
    states = zeros_C + shape.qkv_features();
    std::fill_n(zeros_C, shape.qkv_features(), 0.0f);
  }
};

// A key head and its value heads, with their states.
struct DeltaTask {
  std::int64_t key_head;
  std::vector<std::int64_t> heads;
  std::vector<float*> states;
};

// Rows [first, end) of a sequence whose first packed row is `begin`.
void run_piece(const LayerShape& shape, const DeltaWeights& weights, const ConvInputs& inputs, const DeltaTask& task,
               std::int64_t begin, std::int64_t first, std::int64_t end, const DeltaScratch& scratch,
               LayerBuffers& buffers) {
  const CpuKernels& kernels = cpu_kernels();
  const std::int64_t E = shape.head_dim, V = shape.value_dim(), H = shape.heads, K = shape.kv_heads, rows = end - first;
  const float* conv_WC = weights.conv_WC.const_data_ptr<float>();
  const auto place = [&](std::int64_t channel, const at::Tensor& scale_E, float* out_RE) {
    convolve_rows(inputs, conv_WC, channel, E, first, end, out_RE);
    kernels.rms_norm(out_RE, E, scale_E.const_data_ptr<float>(), kDeltaEps / static_cast<float>(E), out_RE, E, rows, E);
  };
  place(task.key_head * E, weights.query_scale_E, scratch.queries_RE);
  place((K + task.key_head) * E, weights.key_scale_E, scratch.keys_RE);
  for (std::size_t i = 0; i < task.heads.size(); ++i) {
    const std::int64_t head = task.heads[i];
    convolve_rows(inputs, conv_WC, 2 * K * E + head * V, V, first, end, scratch.values_RV);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* steps = buffers.steps_TS.const_data_ptr<float>() + (begin + first + r) * 2 * H;
      scratch.strengths_R[r] = strength_of(steps[head]);
      scratch.decays_R[r] = decay_of(steps[H + head], weights.bias_H.const_data_ptr<float>()[head],
                                     weights.rate_H.const_data_ptr<float>()[head]);
    }
    float* out_RV = buffers.attention_TA.data_ptr<float>() + (begin + first) * H * V + head * V;
    kernels.delta_rule({scratch.queries_RE, scratch.keys_RE, scratch.values_RV, scratch.strengths_R, scratch.decays_R,
                        rows, E, V, task.states[i], out_RV, H * V});
  }
}

}  // namespace

void Attention::run_delta(const PackedBatch& batch, std::int64_t sequence, std::int64_t key_head, DeltaStates* states,
                          LayerBuffers& buffers, int thread_index) const {
  const std::int64_t E = shape_.head_dim, V = shape_.value_dim(), K = shape_.kv_heads, width = shape_.qkv_features(),
                     state_size = shape_.delta->state_numbers(), begin = batch.cu_seqlens[sequence],
                     count = batch.cu_seqlens[sequence + 1] - begin;
  const DeltaScratch scratch(buffers.scratch_of(thread_index), shape_);
  const bool begins = batch.past(sequence) == 0;
  MAGISTER_ASSERT(begins || states != nullptr);
  float *kept_WC = nullptr, *kept_states = nullptr;
  if (states != nullptr) {
    const std::int64_t place = buffers.sequences[static_cast<std::size_t>(sequence)].place;
    MAGISTER_ASSERT(place >= 0 && place < states->heads_PHS.size(0));
    kept_WC = states->inputs_PWC.data_ptr<float>() + place * states->inputs_PWC.stride(0);
    kept_states = states->heads_PHS.data_ptr<float>() + place * states->heads_PHS.stride(0);
  }
  DeltaTask task{key_head, {}, {}};
  for (std::int64_t head = 0; head < shape_.heads; ++head) {
    if (shape_.kv_of_head[static_cast<std::size_t>(head)] != key_head) continue;
    task.states.push_back(kept_states != nullptr ? kept_states + head * state_size
                                                 : scratch.states + std::ssize(task.heads) * state_size);
    task.heads.push_back(head);
    if (begins) std::fill_n(task.states.back(), state_size, 0.0f);
  }
  const ConvInputs inputs{buffers.qkv_TQ.const_data_ptr<float>() + begin * width, begins ? nullptr : kept_WC,
                          scratch.zeros_C, width, shape_.delta->taps};
  for (std::int64_t first = 0; first < count; first += LayerBuffers::kDeltaRows)
    run_piece(shape_, *weights_.delta, inputs, task, begin, first, std::min(first + LayerBuffers::kDeltaRows, count),
              scratch, buffers);
  if (states == nullptr) return;
  keep_inputs(inputs, count, key_head * E, E, kept_WC);
  keep_inputs(inputs, count, (K + key_head) * E, E, kept_WC);
  for (const std::int64_t head : task.heads) keep_inputs(inputs, count, 2 * K * E + head * V, V, kept_WC);
}

void Attention::finish_delta(std::int64_t begin, std::int64_t end, LayerBuffers& buffers) const {
  const std::int64_t H = shape_.heads, V = shape_.value_dim(), numbers = (end - begin) * H * V;
  float* out = buffers.attention_TA.data_ptr<float>() + begin * H * V;
  float* gate = buffers.gate_TG.data_ptr<float>() + begin * H * V;
  cpu_kernels().rms_norm(out, V, weights_.delta->norm_V.const_data_ptr<float>(), shape_.rms_norm_eps, out, V,
                         (end - begin) * H, V);
  cpu_kernels().activate_alone[kSilu](gate, numbers, gate, numbers, 1, numbers);
  for (std::int64_t i = 0; i < numbers; ++i) out[i] *= gate[i];
}

// Token by token for all heads at once, each sequence by itself.
at::Tensor Attention::delta_reference(const at::Tensor& hidden_TD, const PackedBatch& batch) const {
  const DeltaWeights& delta = *weights_.delta;
  const std::int64_t E = shape_.head_dim, V = shape_.value_dim(), H = shape_.heads, K = shape_.kv_heads,
                     W = shape_.delta->taps;
  const at::Tensor input_TD = plain_input(weights_.norms, hidden_TD, shape_.rms_norm_eps),
                   all_TC = plain_product(input_TD, weights_.qkv_proj), steps_TS = plain_product(input_TD, delta.steps),
                   strengths_TH = at::sigmoid(steps_TS.narrow(1, 0, H)),
                   decays_TH = at::exp(-delta.rate_H * at::softplus(steps_TS.narrow(1, H, H) + delta.bias_H));
  const at::Tensor key_of_head = at::tensor(shape_.kv_of_head, at::kLong);
  const auto unit = [&](const at::Tensor& x) {
    return x * at::rsqrt(x.square().sum(-1, true) + DeltaConfig::kLengthEps);
  };
  std::vector<at::Tensor> outputs;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
    const at::Tensor padded_LC = at::constant_pad_nd(all_TC.narrow(0, begin, length), {0, 0, W - 1, 0});
    at::Tensor sum_LC = at::zeros_like(all_TC.narrow(0, begin, length));
    for (std::int64_t tap = 0; tap < W; ++tap) sum_LC = sum_LC + padded_LC.narrow(0, tap, length) * delta.conv_WC[tap];
    const auto parts = at::silu(sum_LC).split_with_sizes({K * E, K * E, H * V}, 1);
    const at::Tensor q_LHE = unit(parts[0].unflatten(1, {K, E})).index_select(1, key_of_head) /
                             std::sqrt(static_cast<double>(E)),
                     k_LHE = unit(parts[1].unflatten(1, {K, E})).index_select(1, key_of_head),
                     v_LHV = parts[2].unflatten(1, {H, V});
    at::Tensor state_HEV = at::zeros({H, E, V}, hidden_TD.options().dtype(at::kFloat));
    for (std::int64_t t = 0; t < length; ++t) {
      const at::Tensor k_HE1 = k_LHE[t].unsqueeze(2);
      state_HEV = state_HEV * decays_TH[begin + t].view({H, 1, 1});
      const at::Tensor change_HV = (v_LHV[t] - (state_HEV * k_HE1).sum(1)) * strengths_TH[begin + t].unsqueeze(1);
      state_HEV = state_HEV + k_HE1 * change_HV.unsqueeze(1);
      outputs.push_back((state_HEV * q_LHE[t].unsqueeze(2)).sum(1));
    }
  }
  const at::Tensor out_THV = at::stack(outputs, 0),
                   normed_THV =
                       delta.norm_V * (out_THV * at::rsqrt(out_THV.square().mean(-1, true) + shape_.rms_norm_eps));
  const at::Tensor gate_THV = plain_product(input_TD, weights_.gate).unflatten(1, {H, V});
  return plain_product((normed_THV * at::silu(gate_THV)).flatten(1), weights_.o_proj);
}

}  // namespace magister
