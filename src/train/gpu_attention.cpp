// See gpu_attention.h. Source of the flash kernel's contract: ATen's flash_api.cpp and attention_backward.cu.
#include "train/gpu_attention.h"

#include <ATen/ATen.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "magister/core/error.h"
#include "magister/device/upload.h"
#include "train/gpu/norm_kernels.h"
#include "train/gpu/pass_kernels.h"
#include "train/gpu_numbers.h"
#include "train/gpu_ops.h"
#include "train/host_flash.h"

namespace magister {

SequencePlan::SequencePlan(const std::vector<std::int64_t>& of_batch, at::Device device, std::int64_t chunk)
    : cu_seqlens{0} {
  for (std::size_t s = 0; s + 1 < of_batch.size(); ++s) {
    while (cu_seqlens.back() < of_batch[s + 1]) {
      const std::int64_t left = of_batch[s + 1] - cu_seqlens.back(), length = chunk > 0 ? std::min(chunk, left) : left;
      cu_seqlens.push_back(cu_seqlens.back() + length);
      longest = std::max(longest, length);
    }
  }
  cu_seqlens_S1 = upload(at::tensor(cu_seqlens, at::kLong).to(at::kInt), device);
}

bool flash_trains(const LayerShape& shape) {
  constexpr std::int64_t kMost = 256;
  return shape.head_dim % 8 == 0 && shape.head_dim <= kMost && shape.heads % shape.kv_heads == 0 &&
         shape.attention_softcap == 0 && shape.has_usual_scores();
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Sizes of a call, in the form that autograd keeps.
struct FlashCall {
  std::int64_t H, K, E, R, window, longest, interleaved;
  double scale;

  std::vector<std::int64_t> kept() const { return {H, K, E, R, window, longest, interleaved}; }
  static FlashCall of(const std::vector<std::int64_t>& kept, double scale) {
    return {kept[0], kept[1], kept[2], kept[3], kept[4], kept[5], kept[6], scale};
  }
  // The kernel's window to the left. If the longest sequence has one token, ATen would exchange grouped heads with
  // queries unless there is a window.
  std::optional<std::int64_t> left() const {
    if (longest == 1) return 1;
    return window > 0 && window < longest ? std::optional(window - 1) : std::nullopt;
  }
  std::optional<std::int64_t> right() const { return left() ? std::optional<std::int64_t>(0) : std::nullopt; }
};

// q, k and v of rows [T, Q], by heads.
struct Heads {
  at::Tensor q_THE, k_TKE, v_TKE;

  Heads(const at::Tensor& qkv_TQ, const FlashCall& call) {
    const at::Tensor all = qkv_TQ.view({qkv_TQ.size(0), call.H + 2 * call.K, call.E});
    q_THE = all.narrow(1, 0, call.H);
    k_TKE = all.narrow(1, call.H, call.K);
    v_TKE = all.narrow(1, call.H + call.K, call.K);
  }
};

gpu::HeadsOf<const gpu::Bf16> read(const at::Tensor& x_THE) {
  return {numbers<const gpu::Bf16>(x_THE), x_THE.stride(0)};
}
gpu::HeadsOf<gpu::Bf16> written(const at::Tensor& x_THE) { return {numbers<gpu::Bf16>(x_THE), x_THE.stride(0)}; }

// Rotates q and k into those of `to` and copies v, unless v is undefined. Without angles nothing is rotated.
void turn_qkv(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Heads& to, const at::Tensor& cos,
              const at::Tensor& sin, const FlashCall& call, bool back) {
  const std::int64_t R = cos.defined() ? call.R : 0;
  const bool eight = call.E % 8 == 0 && R % 16 == 0;
  const bool in_place = !v.defined();
  const gpu::TurnHeads<gpu::Bf16, gpu::Bf16> kernel{read(q),
                                                    read(k),
                                                    in_place ? gpu::HeadsOf<const gpu::Bf16>{nullptr, 0} : read(v),
                                                    written(to.q_THE),
                                                    written(to.k_TKE),
                                                    written(to.v_TKE),
                                                    numbers<const float>(cos),
                                                    numbers<const float>(sin),
                                                    q.size(0),
                                                    call.H,
                                                    call.K,
                                                    call.E,
                                                    R,
                                                    call.interleaved != 0,
                                                    in_place,
                                                    eight,
                                                    back ? -1.0f : 1.0f};
  start(kernel, queue_at(q));
}

// What the forward pass leaves for the backward pass; state and unused: of ATen's kernel.
struct FlashResult {
  at::Tensor out_THE, sums_HT, state, unused;
};

HostFlash on_host(const at::Tensor& cu_seqlens_S1, const FlashCall& call) {
  const auto* const at = cu_seqlens_S1.const_data_ptr<std::int32_t>();
  return {{at, at + cu_seqlens_S1.numel()}, call.window, call.scale};
}

FlashResult run_flash(const Heads& heads, const at::Tensor& cu_seqlens_S1, const FlashCall& call) {
  if (heads.q_THE.is_cpu()) {
    const HostFlash::Forward found = on_host(cu_seqlens_S1, call).forward(heads.q_THE, heads.k_TKE, heads.v_TKE);
    return {found.out_THE, found.sums_HT, {}, {}};
  }
  const auto [out, sums, state, unused, mask] = at::_flash_attention_forward(
      heads.q_THE, heads.k_TKE, heads.v_TKE, cu_seqlens_S1, cu_seqlens_S1, call.longest, call.longest, 0.0,
      /*is_causal=*/true, /*return_debug_mask=*/false, call.scale, call.left(), call.right());
  return {out, sums, state, unused};
}

// Replaces the heads by their gradients.
void run_flash_back(Heads& heads, const at::Tensor& gradient_THE, const FlashResult& forward,
                    const at::Tensor& cu_seqlens_S1, const FlashCall& call) {
  if (heads.q_THE.is_cpu()) {
    const HostFlash::Gradients found =
        on_host(cu_seqlens_S1, call)
            .backward(gradient_THE, heads.q_THE, heads.k_TKE, heads.v_TKE, {forward.out_THE, forward.sums_HT});
    std::tie(heads.q_THE, heads.k_TKE, heads.v_TKE) = std::tie(found.q_THE, found.k_TKE, found.v_TKE);
  } else {
    std::tie(heads.q_THE, heads.k_TKE, heads.v_TKE) = at::_flash_attention_backward(
        gradient_THE, heads.q_THE, heads.k_TKE, heads.v_TKE, forward.out_THE, forward.sums_HT, cu_seqlens_S1,
        cu_seqlens_S1, call.longest, call.longest, 0.0, /*is_causal=*/true, forward.state, forward.unused, call.scale,
        call.left(), call.right());
  }
  for (at::Tensor* const x : {&heads.q_THE, &heads.k_TKE, &heads.v_TKE}) *x = x->contiguous();
}

// Adds one key that every query sees, with this score of each head and a value of zeros. The kernel's backward pass
// takes all that it needs to know of other keys from the output and the sums, so it is right with this key, too.
void add_sinks(FlashResult& result, const at::Tensor& sinks_H) {
  const at::Tensor sums_HT = at::logaddexp(result.sums_HT, sinks_H.unsqueeze(1));
  result.out_THE = (result.out_THE * at::exp(result.sums_HT - sums_HT).t().unsqueeze(2)).to(at::kBFloat16).contiguous();
  result.sums_HT = sums_HT.contiguous();
}

at::Tensor gradient_of_sinks(const at::Tensor& gradient_THE, const FlashResult& forward, const at::Tensor& sinks_H) {
  const at::Tensor along_HT = (gradient_THE.to(at::kFloat) * forward.out_THE).sum(2).t();
  return (at::exp(sinks_H.unsqueeze(1) - forward.sums_HT) * along_HT).sum(1).neg();
}

gpu::NormRowsOf rows_of_heads(const at::Tensor& x_THE) {
  return {x_THE.size(0) * x_THE.size(1), x_THE.size(2), x_THE.size(1), x_THE.stride(0), true};
}

struct NormedHeads {
  at::Tensor out_THE, roots_R;
};
NormedHeads normed_heads(const at::Tensor& x_THE, const at::Tensor& weight_E, double eps) {
  NormedHeads to{at::empty(x_THE.sizes(), x_THE.options()),
                 at::empty({x_THE.size(0) * x_THE.size(1)}, weight_E.options())};
  start(gpu::TrainNorm<gpu::Bf16, gpu::Bf16>{numbers<const gpu::Bf16>(x_THE), numbers<const float>(weight_E),
                                             numbers<gpu::Bf16>(to.out_THE), numbers<float>(to.roots_R),
                                             rows_of_heads(x_THE), static_cast<float>(eps)},
        queue_at(x_THE));
  return to;
}

// Returns the gradient by the weight; the gradient by x is written to of_x.
at::Tensor norm_heads_back(const at::Tensor& gradient_THE, const at::Tensor& x_THE, const at::Tensor& weight_E,
                           const at::Tensor& roots_R, const at::Tensor& of_x_THE) {
  gpu::TrainNormBack<gpu::Bf16, gpu::Bf16> kernel{numbers<const gpu::Bf16>(gradient_THE),
                                                  numbers<const gpu::Bf16>(x_THE),
                                                  numbers<const float>(weight_E),
                                                  numbers<const float>(roots_R),
                                                  nullptr,
                                                  numbers<gpu::Bf16>(of_x_THE),
                                                  nullptr,
                                                  rows_of_heads(x_THE)};
  const at::Tensor partial_UE = at::empty({kernel.num_partial(), weight_E.numel()}, weight_E.options());
  kernel.partial_UD = numbers<float>(partial_UE);
  start(kernel, queue_at(x_THE));
  return partial_UE.sum(0);
}

class FlashAttention : public Function<FlashAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv_TQ, const at::Tensor& cu_seqlens_S1,
                            const std::optional<at::Tensor>& cos, const std::optional<at::Tensor>& sin,
                            const std::optional<at::Tensor>& q_norm_E, const std::optional<at::Tensor>& k_norm_E,
                            const std::optional<at::Tensor>& sinks_H, const std::vector<std::int64_t>& sizes,
                            double scale, double eps) {
    const FlashCall call = FlashCall::of(sizes, scale);
    context->saved_data["sizes"] = sizes;
    context->saved_data["scale"] = scale;
    context->saved_data["eps"] = eps;
    variable_list saved = {qkv_TQ, cu_seqlens_S1};
    for (const auto& one : {cos, sin, q_norm_E, k_norm_E, sinks_H}) saved.push_back(one.value_or(at::Tensor()));
    at::Tensor roots[2];
    Heads heads(qkv_TQ, call);
    if (q_norm_E) norm_both(heads, saved, eps, roots);
    if (cos) turn_qkv(heads.q_THE, heads.k_TKE, {}, heads, *cos, *sin, call, false);
    FlashResult result = run_flash(heads, cu_seqlens_S1, call);
    if (sinks_H) add_sinks(result, *sinks_H);
    saved.insert(saved.end(), {result.out_THE, result.sums_HT, result.state, result.unused});
    context->save_for_backward(saved);
    return result.out_THE.reshape({qkv_TQ.size(0), call.H * call.E});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &qkv_TQ = saved[0], &cu_seqlens_S1 = saved[1], &cos = saved[2], &sin = saved[3],
                     &sinks_H = saved[6];
    const FlashResult forward{saved[7], saved[8], saved[9], saved[10]};
    const FlashCall call =
        FlashCall::of(context->saved_data["sizes"].toIntVector(), context->saved_data["scale"].toDouble());
    const Heads raw(qkv_TQ, call);
    const bool normed = saved[4].defined();
    Heads of = raw;
    at::Tensor roots[2];
    if (normed) {  // recomputed: only the product's output was kept
      norm_both(of, saved, context->saved_data["eps"].toDouble(), roots);
      if (cos.defined()) turn_qkv(of.q_THE, of.k_TKE, {}, of, cos, sin, call, false);
    }
    const at::Tensor gradient_THE = gradients[0].to(at::kBFloat16).contiguous().view({qkv_TQ.size(0), call.H, call.E});
    run_flash_back(of, gradient_THE, forward, cu_seqlens_S1, call);
    at::Tensor of_qkv_TQ = at::empty_like(qkv_TQ);
    const Heads to(of_qkv_TQ, call);
    variable_list out(10);
    out[0] = of_qkv_TQ;
    if (sinks_H.defined()) out[6] = gradient_of_sinks(gradient_THE, forward, sinks_H);
    if (!normed) {
      turn_qkv(of.q_THE, of.k_TKE, of.v_TKE, to, cos, sin, call, true);
      return out;
    }
    if (cos.defined()) turn_qkv(of.q_THE, of.k_TKE, {}, of, cos, sin, call, true);
    to.v_TKE.copy_(of.v_TKE);
    out[4] = norm_heads_back(of.q_THE, raw.q_THE, saved[4], roots[0], to.q_THE);
    out[5] = norm_heads_back(of.k_TKE, raw.k_TKE, saved[5], roots[1], to.k_TKE);
    return out;
  }

 private:
  static void norm_both(Heads& heads, const variable_list& saved, double eps, at::Tensor (&roots)[2]) {
    const NormedHeads q = normed_heads(heads.q_THE, saved[4], eps), k = normed_heads(heads.k_TKE, saved[5], eps);
    heads.q_THE = q.out_THE;
    heads.k_TKE = k.out_THE;
    roots[0] = q.roots_R;
    roots[1] = k.roots_R;
  }
};

// The output and the gradients of a small call, on the host.
variable_list probe_flash(at::Device where, bool with_sinks) {
  const c10::AutoGradMode with_graph(true);
  const FlashCall call{4, 2, 64, 64, 0, 150, 0, 0.125};
  const at::Tensor cu = at::tensor({0, 1, 38, 188}, at::kInt);
  const auto waves = [](std::int64_t columns, double step) {
    return at::sin(at::arange(188 * columns, at::kFloat).mul_(step)).view({188, columns});
  };
  const at::Tensor qkv = waves(512, 1.37).mul_(2).to(at::kBFloat16), gradient = waves(256, 0.71).to(at::kBFloat16),
                   angles = waves(32, 0.33).mul_(3);
  variable_list leaves = {qkv.to(where).requires_grad_(true)};
  if (with_sinks) leaves.push_back(at::tensor({-1.0, 0.5, 2.0, 4.0}, at::kFloat).to(where).requires_grad_(true));
  const at::Tensor out =
      FlashAttention::apply(leaves[0].clone(), cu.to(where), std::optional(at::cos(angles).to(where)),
                            std::optional(at::sin(angles).to(where)), std::nullopt, std::nullopt,
                            with_sinks ? std::optional(leaves[1]) : std::nullopt, call.kept(), call.scale, 0.0);
  variable_list all = torch::autograd::grad({out}, leaves, {gradient.to(where)});
  all.push_back(out.detach());
  for (at::Tensor& one : all) one = one.cpu();
  return all;
}

// Runs once per process and GPU: compares the flash kernel, forward and backward, without and with sinks, with the
// host's arithmetic, on sequences of one token, of less and of more than a block, with two heads per KV head, and
// requires the same bits in a second run. Takes some milliseconds.
void check_flash(at::Device device) {
  static std::mutex mutex;
  static std::set<int> checked;
  const std::lock_guard lock(mutex);
  if (!checked.insert(static_cast<int>(device.index())).second) return;
  for (const bool with_sinks : {false, true}) {
    const variable_list found = probe_flash(device, with_sinks), again = probe_flash(device, with_sinks),
                        expected = probe_flash(at::kCPU, with_sinks);
    for (std::size_t i = 0; i < found.size(); ++i) {
      MAGISTER_CHECK(
          at::equal(found[i], again[i]), ExitCode::kInternal,
          "flash attention gives different bits in a second run on {} (a training would not be repeatable); train "
          "with `precision: f32` and report this",
          device.str());
      constexpr double kLimit = 2e-2;  // of the largest; neighbouring numbers of bf16 are 8e-3 apart
      const at::Tensor right = expected[i].to(at::kFloat);
      const double apart = ((found[i].to(at::kFloat) - right).abs().max() / right.abs().max()).item<double>();
      MAGISTER_CHECK(
          apart <= kLimit, ExitCode::kInternal,
          "flash attention on {} is {} from the host's (at most {} is rounding); train with `precision: f32` and "
          "report this",
          device.str(), apart, kLimit);
    }
  }
}

}  // namespace

at::Tensor gpu_flash_attention(const at::Tensor& qkv_TQ, const SequencePlan& sequences, const LayerShape& shape,
                               const RopeTable* rope, bool interleaved, const HeadNorms& norms,
                               const at::Tensor& sinks_H) {
  check_flash(qkv_TQ.device());
  MAGISTER_ASSERT(qkv_TQ.scalar_type() == at::kBFloat16 && qkv_TQ.is_contiguous());
  const bool turns = rope != nullptr && shape.rotary_dim > 0;
  const FlashCall call{.H = shape.heads,
                       .K = shape.kv_heads,
                       .E = shape.head_dim,
                       .R = turns ? shape.rotary_dim : 0,
                       .window = shape.sliding_window,
                       .longest = sequences.longest,
                       .interleaved = interleaved,
                       .scale = static_cast<double>(shape.attention_scale)};
  const auto given = [](bool is, const at::Tensor& tensor) { return is ? std::optional(tensor) : std::nullopt; };
  const bool normed = norms.q_E.defined();
  return FlashAttention::apply(qkv_TQ, sequences.cu_seqlens_S1, given(turns, turns ? rope->cos_PE2 : at::Tensor()),
                               given(turns, turns ? rope->sin_PE2 : at::Tensor()), given(normed, norms.q_E),
                               given(normed, norms.k_E), given(sinks_H.defined(), sinks_H), call.kept(), call.scale,
                               norms.eps);
}

}  // namespace magister
