// GpuBackend: connects a GpuModel and its head to Transformer, and loads the weights onto the device.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "magister/model/weights.h"
#include "model/gpu/device_memory.h"
#include "model/gpu/gpu_model.h"
#include "model/model_backend.h"

namespace magister::gpu {

// This shard's weights with their tile sizes, read from the file, or random with the shapes of a config. When the last
// user releases them, their memory returns to the driver. Local.
std::shared_ptr<const GpuWeights> load_gpu_weights(const ModelDescription& description, const TensorFile& file,
                                                   const ProcessGroup& group, ThreadPool& pool, at::ScalarType dtype,
                                                   const QuantScheme& quantization, const Queue& queue,
                                                   const LoadHook& hook);
std::shared_ptr<const GpuWeights> random_gpu_weights(const ModelConfig& config, const ProcessGroup& group,
                                                     at::ScalarType dtype, const QuantScheme& quantization,
                                                     const Queue& queue);
// Everything that decides the weights in addition to the file, its dtype and the quantisation.
std::string describe_gpu_shard(const ProcessGroup& group, const Queue& queue);

class GpuBackend final : public ModelBackend {
 public:
  // group is kept by reference.
  GpuBackend(std::shared_ptr<const GpuWeights> weights, ProcessGroup& group, const Queue& queue);

  at::Tensor forward(const PackedBatch& batch, const std::function<bool()>& should_stop) override {
    return should_stop && should_stop() ? at::Tensor() : model_.forward(batch, {}, nullptr);
  }
  at::Tensor forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache) override {
    return model_.forward(batch, slots, &cache);
  }
  KvCache make_cache(std::int64_t num_pages, std::int64_t = 1) const override { return model_.make_cache(num_pages); }
  at::Tensor logits(const at::Tensor& hidden_RD) const override { return lm_head_.capped(model_.logits(hidden_RD)); }
  at::Tensor forward_reference(const PackedBatch& batch) override;
  std::string first_not_finite(const PackedBatch& batch) override { return model_.first_not_finite(batch); }
  void self_test() override { model_.self_test(); }

  const LmHead& lm_head() const override { return lm_head_; }
  const ModelConfig& config() const override { return weights_->config; }
  std::uint64_t weight_bytes() const override { return model_.weight_bytes(); }
  bool has_codes() const override { return weights_->has_codes(); }
  bool multiplies_fp8() const override { return weights_->fp8; }
  const Queue* queue() const override { return &model_.queue(); }
  bool separates_prefill() const override { return true; }
  bool narrows_last_layer() const override { return model_.has_rows_of_their_own(); }
  bool takes_drawn_ids(std::int64_t rows, std::int64_t tokens) const override {
    return model_.takes_drawn_ids(rows, tokens);
  }
  bool shares_prefixes() const override {
    return !model_.has_cudnn_attention() &&
           std::all_of(weights_->layers.begin(), weights_->layers.end(), [this](const GpuLayer& layer) {
             return prompts_may_be_cut(layer.shape, layer.scores.sinks_H.defined(), weights_->dtype, model_.queue());
           });
  }
  void use_cuda_graphs(bool on) override { model_.use_graphs(on); }
  void use_cudnn_attention() override { model_.use_cudnn_attention(); }
  void use_throughput_decoding() override { model_.use_throughput_decoding(); }
  void use_fp8_cache() override { model_.use_fp8_cache(); }

 private:
  GivesMemoryBack at_the_end_;
  std::shared_ptr<const GpuWeights> weights_;
  GpuModel model_;
  LmHead lm_head_;
};

}  // namespace magister::gpu
