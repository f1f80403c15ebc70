// Runs the sampler's kernel over a batch and copies its results to the host.
#include "engine/gpu_sampler.h"

#include <ATen/ATen.h>

#include "engine/gpu/sample_kernel.h"
#include "magister/device/upload.h"

namespace magister {

DrawnRows draw_rows_on_device(const at::Tensor& logits_RV, const std::vector<double>& uniforms,
                              const SamplingParams& params, const gpu::Queue& queue) {
  const std::int64_t R = logits_RV.size(0), V = logits_RV.size(1);
  const at::Tensor uniform_R = upload(at::tensor(uniforms, at::kDouble), logits_RV.device());
  at::Tensor out_2R =
      at::empty({2, R}, logits_RV.options().dtype(at::kInt));  // ids, and log-probabilities as bits, for a single copy
  const gpu::SampleRows kernel{logits_RV.const_data_ptr<float>(),
                               logits_RV.stride(0),
                               uniform_R.const_data_ptr<double>(),
                               out_2R.data_ptr<std::int32_t>(),
                               reinterpret_cast<float*>(out_2R.data_ptr<std::int32_t>() + R),
                               static_cast<int>(V),
                               params.temperature,
                               static_cast<int>(params.top_k),
                               params.top_p,
                               params.min_p};
  gpu::launch(kernel, kernel.shape(R), queue);
  DrawnRows drawn{out_2R[0], out_2R, {}};
  if (!queue.on_host()) {
    drawn.on_host_2R = at::empty({2, R}, at::TensorOptions().dtype(at::kInt).pinned_memory(true));
    drawn.on_host_2R.copy_(out_2R, /*non_blocking=*/true);
    drawn.copied = GpuEvent::record();
  }
  return drawn;
}

std::vector<SampledToken> DrawnRows::tokens() const {
  const std::int64_t R = on_host_2R.size(1);
  const auto* ids = on_host_2R.const_data_ptr<std::int32_t>();
  const auto* logprobs = reinterpret_cast<const float*>(ids + R);
  std::vector<SampledToken> tokens;
  tokens.reserve(static_cast<std::size_t>(R));
  for (std::int64_t r = 0; r < R; ++r) tokens.push_back({ids[r], logprobs[r]});
  return tokens;
}

}  // namespace magister
