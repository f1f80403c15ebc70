// The call, and the test of cuDNN that every model makes before it is used; see cudnn_attention.h.
#include "model/gpu/cudnn_attention.h"

#include <ATen/ATen.h>
#include <ATen/ops/_cudnn_attention_forward.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "magister/core/error.h"
#include "magister/device/gpu_stamp.h"
#include "magister/model/transformer.h"
#include "model/gpu/gpu_attention.h"

namespace magister::gpu {
namespace {

// bf16 rounds by 2^-9, and the weights of keys are rounded before they are summed. A result that is not attention at
// all would be wrong by the size of the values.
constexpr double kNearFlash = 0.03;
constexpr int kRepeats = 3;
constexpr std::int64_t kTimedText = 4096;

std::int64_t filled_up(std::int64_t length) { return (length + kCudnnStep - 1) / kCudnnStep * kCudnnStep; }

// The rows of text number `one` in a pass over texts of these lengths, [L, H E].
at::Tensor rows_of(const at::Tensor& qkv_TQ, const std::vector<std::int64_t>& lengths, std::size_t one,
                   const LayerShape& shape, bool by_cudnn, const Queue& queue) {
  std::vector<std::vector<TokenId>> texts;
  std::int64_t first = 0;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    texts.emplace_back(static_cast<std::size_t>(lengths[s]), 0);
    if (s < one) first += lengths[s];
  }
  const PackedBatch batch = pack_sequences(texts);
  const bool flash = flash_takes(shape, qkv_TQ.scalar_type(), queue);
  return attend(plan_attention(batch, {}, qkv_TQ.device(), by_cudnn), shape, {qkv_TQ}, flash, queue)
      .narrow(0, first, lengths[one]);
}

std::string problem_with(std::int64_t length, const LayerShape& shape, at::TensorOptions options, const Queue& queue) {
  constexpr std::int64_t kBefore = 37, kAfter = 300;
  const std::int64_t columns = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const at::Tensor among_TQ = at::randn({kBefore + length + kAfter, columns}, options),
                   alone_LQ = among_TQ.narrow(0, kBefore, length).clone();
  const at::Tensor wanted = rows_of(alone_LQ, {length}, 0, shape, true, queue);
  for (int i = 0; i < kRepeats; ++i) {
    if (!at::equal(rows_of(among_TQ, {kBefore, length, kAfter}, 1, shape, true, queue), wanted) ||
        !at::equal(rows_of(alone_LQ, {length}, 0, shape, true, queue), wanted))
      return fmt::format("rows of a text of {} tokens have other bits among other texts, or when computed again",
                         length);
  }
  const at::Tensor plain = rows_of(alone_LQ, {length}, 0, shape, false, queue).to(at::kFloat);
  const double apart = (wanted.to(at::kFloat) - plain).abs().max().item<double>(),
               largest = plain.abs().max().item<double>();
  if (apart <= kNearFlash * largest) return "";  // false for NaN, too
  return fmt::format("a text of {} tokens is off by {:.3g} of {:.3g} from flash attention", length, apart, largest);
}

double milliseconds(const at::Tensor& qkv_TQ, const LayerShape& shape, bool by_cudnn, const Queue& queue) {
  double best = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const GpuStamp begin = GpuStamp::record();
    rows_of(qkv_TQ, {kTimedText}, 0, shape, by_cudnn, queue);
    const double took = GpuStamp::record().milliseconds_since(begin);
    best = i == 0 ? took : std::min(best, took);
  }
  return best;
}

}  // namespace

bool cudnn_takes(const LayerShape& shape, bool has_sinks, at::ScalarType dtype) {
  return dtype == at::kBFloat16 && shape.sliding_window == 0 && !shape.latent && shape.value_dim() == shape.head_dim &&
         !needs_score_blocks(shape, has_sinks);
}

at::Tensor attend_by_cudnn(const at::Tensor& q_LHE, const at::Tensor& k_LKE, const at::Tensor& v_LKE, double scale) {
  const std::int64_t L = q_LHE.size(0), filled = filled_up(L);
  // No query of the text sees the padding rows after it, but they must be finite.
  const auto heads_first = [&](const at::Tensor& x) {
    if (filled == L) return x.transpose(0, 1).unsqueeze(0);
    at::Tensor longer = at::zeros({filled, x.size(1), x.size(2)}, x.options());
    longer.narrow(0, 0, L).copy_(x);
    return longer.transpose(0, 1).unsqueeze(0);
  };
  const at::Tensor out_1HFE = std::get<0>(at::_cudnn_attention_forward(
      heads_first(q_LHE), heads_first(k_LKE), heads_first(v_LKE), std::nullopt, std::nullopt, std::nullopt, filled,
      filled, /*compute_log_sumexp=*/false, /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale));
  return out_1HFE.squeeze(0).transpose(0, 1).narrow(0, 0, L);
}

CudnnTrial try_cudnn_attention(const LayerShape& shape, at::ScalarType dtype, at::Device device, const Queue& queue) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
  const std::int64_t columns = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  try {
    for (const std::int64_t length : {kLongText, kLongText + 101, kTimedText}) {
      if (std::string problem = problem_with(length, shape, options, queue); !problem.empty()) return {problem};
    }
    if (queue.on_host()) return {};
    const at::Tensor qkv_TQ = at::randn({kTimedText, columns}, options);
    const double flash = milliseconds(qkv_TQ, shape, false, queue);
    return {"", milliseconds(qkv_TQ, shape, true, queue) / flash};
  } catch (const c10::Error& error) {
    return {printable(error.what_without_backtrace(), 300)};
  }
}

}  // namespace magister::gpu
