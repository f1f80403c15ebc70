// Buffers, tables and the order of the kernels; see decoder_experts.h. The products are those of run_experts()
// (gpu_experts.h) with the decode kernels: the same bits, without the host.
#include "model/gpu/decoder_experts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "magister/model/transformer.h"
#include "model/gpu/expert_kernels.h"
#include "model/gpu/gpu_experts.h"
#include "model/gpu/gpu_mlp.h"
#include "model/gpu/grouped_product.h"

namespace magister::gpu {
namespace {

// Buffers, in the order of buffers_of().
enum Buffer : std::size_t {
  kLogits,
  kExperts,
  kWeights,
  kPlaces,
  kRoutes,
  kItems,
  kInputs,
  kUp,
  kMiddle,
  kOutputs,
  kSharedUp,
  kSharedMiddle,
  kBeside,
  kNumBuffers
};
using Buffers = std::array<std::pair<at::ScalarType, std::int64_t>, kNumBuffers>;

// Dtype and numbers per row of a pass of every buffer.
Buffers buffers_of(const ExpertWidths& widths) {
  const std::int64_t k = widths.per_token, T = widths.routes(), D = widths.hidden;
  return {{{at::kFloat, widths.logits},
           {at::kInt, T},
           {at::kFloat, T},
           {at::kInt, T},
           {at::kInt, T},
           {at::kInt, 3 * k},  // an item has at least one row
           {at::kBFloat16, (widths.weighs_inputs ? T : k) * D},
           {at::kBFloat16, k * widths.up},
           {at::kBFloat16, k * widths.mlp},
           {at::kFloat, T * D},  // outputs stay f32 for their sum
           {at::kBFloat16, widths.shared * widths.shared_up},
           {at::kBFloat16, widths.shared_mlp},
           {at::kFloat, widths.beside ? D : 0}}};
}

}  // namespace

ExpertWidths expert_widths(const ModelConfig& config, const Partition& partition) {
  ExpertWidths widths;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerShape shape = shape_of(config, partition, layer);
    if (shape.num_experts == 0) continue;
    const RouterRule rule = shape.router_rule();
    return {.hidden = config.hidden_size,
            .experts = rule.experts,
            .per_token = rule.per_token,
            .shared = rule.shared,
            .logits = rule.logits(),
            .up = 2 * shape.expert_mlp,
            .mlp = shape.expert_mlp,
            .shared_up = 2 * shape.shared_mlp,
            .shared_mlp = shape.shared_mlp,
            .weighs_inputs = shape.router.weighs_inputs,
            .beside = config.dense_beside_experts};
  }
  return widths;
}

DecoderExperts::DecoderExperts(const GpuWeights& weights)
    : weights_(&weights), widths_(expert_widths(weights.config, weights.partition)), layers_(weights.layers.size()) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (weights.layers[i].experts.empty()) continue;
    const auto joined_up = joined_experts(weights.layers[i], &GpuExpert::gate_up_proj, weights.device),
               joined_down = joined_experts(weights.layers[i], &GpuExpert::down_proj, weights.device);
    works_ = works_ && joined_up && joined_down;
    if (!works_) return;
    layers_[i] = {*joined_up, *joined_down};
  }
}

void DecoderExperts::reserve() {
  if (!work_.empty() || widths_.experts == 0) return;
  std::vector<at::Tensor> work;
  for (const auto& [type, numbers] : buffers_of(widths_))
    work.push_back(at::empty({kGpuDecodingRows * numbers}, at::TensorOptions().dtype(type).device(weights_->device)));
  work_ = std::move(work);
}

at::Tensor DecoderExperts::rows_of(std::size_t buffer, std::int64_t rows, std::int64_t width) const {
  return work_[buffer].narrow(0, 0, rows * width).view({rows, width});
}

at::Tensor DecoderExperts::beside_rows(std::int64_t R) const { return rows_of(kBeside, R, widths_.hidden); }

void DecoderExperts::queue_routes(std::size_t i, const at::Tensor& router_RD, const at::Tensor& visible_R,
                                  const Queue& queue) {
  const GpuLayer& layer = weights_->layers[i];
  const std::int64_t R = router_RD.size(0), k = widths_.per_token, T = widths_.routes();
  at::Tensor logits_RL = rows_of(kLogits, R, widths_.logits);
  product_of_few(layer.router, router_RD, logits_RL, queue);
  const GpuRoutes routes{rows_of(kExperts, R, T), rows_of(kWeights, R, T)};
  choose_experts(logits_RL, layer, routes, queue);
  const auto X = static_cast<int>(widths_.experts), rows = item_rows(R, k, X);
  const GroupRoutes group{data<std::int32_t>(routes.experts_TR),
                          data<std::int32_t>(visible_R),
                          data<std::int32_t>(work_[kPlaces]),
                          data<std::int32_t>(work_[kRoutes]),
                          data<ExpertRows>(work_[kItems]),
                          static_cast<int>(R),
                          static_cast<int>(k),
                          static_cast<int>(widths_.shared),
                          X,
                          rows,
                          GroupRoutes::most_items(static_cast<int>(R), static_cast<int>(k), X, rows)};
  launch(group, group.shape(), queue);
}

void DecoderExperts::multiply_all(const ExpertProducts& products, const at::Tensor& x_NK, std::int64_t x_stride,
                                  at::Tensor& out_NM, std::int64_t R, const Queue& queue) const {
  const auto X = static_cast<int>(widths_.experts), k = static_cast<int>(widths_.per_token);
  const int rows = item_rows(R, k, X);
  const bool float_out = out_NM.scalar_type() == at::kFloat;
  const ProductArguments arguments{products.weight,   data<Bf16>(x_NK), x_stride, nullptr,
                                   out_NM.data_ptr(), out_NM.size(1),   rows,     float_out};
  grouped_product(arguments, reinterpret_cast<const ExpertPlace*>(data<std::uint8_t>(products.places_X)),
                  data<ExpertRows>(work_[kItems]), GroupRoutes::most_items(static_cast<int>(R), k, X, rows),
                  products.bits, products.group, products.aligned, queue);
}

void DecoderExperts::queue_up(std::size_t i, const at::Tensor& normed_RD, const Multiply& multiply,
                              const Queue& queue) {
  const GpuLayer& layer = weights_->layers[i];
  const std::int64_t R = normed_RD.size(0), D = widths_.hidden, k = widths_.per_token, T = widths_.routes();
  MAGISTER_ASSERT(normed_RD.is_contiguous());
  const bool weighs = widths_.weighs_inputs, gathers = weighs || R > 1;  // the experts of one row read that row
  at::Tensor inputs_ND = normed_RD;
  if (gathers) {
    inputs_ND = rows_of(kInputs, R * (weighs ? T : k), D);
    const GatherTokens<Bf16> gather{data<Bf16>(normed_RD),
                                    data<std::int32_t>(work_[kRoutes]),
                                    weighs ? data<float>(work_[kWeights]) : nullptr,
                                    data<Bf16>(inputs_ND),
                                    D,
                                    static_cast<int>(T)};
    launch(gather, gather.shape(inputs_ND.size(0)), queue);
  }
  at::Tensor up_NF = rows_of(kUp, R * k, widths_.up);
  multiply_all(layers_[i].up, inputs_ND, gathers ? D : 0, up_NF, R, queue);
  at::Tensor shared_up = rows_of(kSharedUp, widths_.shared * R, widths_.shared_up);
  for (std::int64_t s = 0; s < widths_.shared; ++s) {
    at::Tensor up_RF = shared_up.narrow(0, s * R, R);
    multiply(layer.experts[static_cast<std::size_t>(widths_.experts + s)].gate_up_proj,
             {weighs ? inputs_ND.narrow(0, R * (k + s), R) : normed_RD}, up_RF);
  }
}

void DecoderExperts::queue_down(std::size_t i, at::Tensor& out_RD, const Multiply& multiply, const Queue& queue) {
  const GpuLayer& layer = weights_->layers[i];
  const std::int64_t R = out_RD.size(0), D = widths_.hidden, k = widths_.per_token, T = widths_.routes();
  const MlpFunction function = function_of(layer);
  at::Tensor middle_NF = rows_of(kMiddle, R * k, widths_.mlp), outputs_ND = rows_of(kOutputs, R * T, D),
             chosen_ND = outputs_ND.narrow(0, 0, R * k);
  activate(function, rows_of(kUp, R * k, widths_.up), {middle_NF}, queue);
  multiply_all(layers_[i].down, middle_NF, widths_.mlp, chosen_ND, R, queue);
  const at::Tensor shared_up = rows_of(kSharedUp, widths_.shared * R, widths_.shared_up),
                   middle_RF = rows_of(kSharedMiddle, R, widths_.shared_mlp);
  for (std::int64_t s = 0; s < widths_.shared; ++s) {
    activate(function, shared_up.narrow(0, s * R, R), {middle_RF}, queue);
    at::Tensor own_RD = outputs_ND.narrow(0, R * (k + s), R);
    multiply(layer.experts[static_cast<std::size_t>(widths_.experts + s)].down_proj, {middle_RF}, own_RD);
  }
  const SumExperts<float> sum{data<float>(outputs_ND),
                              data<std::int32_t>(work_[kPlaces]),
                              widths_.weighs_inputs ? nullptr : data<float>(work_[kWeights]),
                              data<float>(out_RD),
                              D,
                              static_cast<int>(T)};
  launch(sum, sum.shape(R), queue);
}

std::uint64_t DecoderExperts::num_bytes() const {
  std::uint64_t bytes = 0;
  for (const at::Tensor& buffer : work_) bytes += buffer.nbytes();
  for (const Layer& layer : layers_) bytes += bytes_of({layer.up.places_X, layer.down.places_X});
  return bytes;
}

std::uint64_t DecoderExperts::planned_bytes(const ModelConfig& config, const Partition& partition) {
  const ExpertWidths widths = expert_widths(config, partition);
  if (widths.experts == 0) return 0;
  std::int64_t row = 0, sparse_layers = 0;
  for (const auto& [type, numbers] : buffers_of(widths))
    row += numbers * static_cast<std::int64_t>(c10::elementSize(type));
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) sparse_layers += config.is_sparse(layer);
  return static_cast<std::uint64_t>(kGpuDecodingRows * row + sparse_layers * 2 * widths.experts *
                                                                 static_cast<std::int64_t>(sizeof(ExpertPlace)));
}

}  // namespace magister::gpu
