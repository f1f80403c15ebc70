// GpuBackend: a GpuModel, the partition that it holds and its head, as Transformer asks for them.
#pragma once

#include <memory>

#include "magister/model/weights.h"
#include "model/gpu/gpu_model.h"
#include "model/model_backend.h"

namespace magister::gpu {

class GpuBackend final : public ModelBackend {
 public:
  // group is kept by reference. Without a source: random weights of the config's shapes.
  GpuBackend(const ModelConfig& config, ProcessGroup& group, at::ScalarType dtype, const Queue& queue);
  void load(WeightSource& source, bool tied);
  void randomize(const QuantScheme& quantization);

  at::Tensor forward(const PackedBatch& batch, const std::function<bool()>& should_stop) override {
    return should_stop && should_stop() ? at::Tensor() : model_.forward(batch, {}, nullptr);
  }
  at::Tensor forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache) override {
    return model_.forward(batch, slots, &cache);
  }
  KvCache make_cache(std::int64_t num_pages) const override { return model_.make_cache(num_pages); }
  at::Tensor logits(const at::Tensor& hidden_RD) const override {
    return lm_head_.capped(product(model_.head(), hidden_RD, at::kFloat, model_.queue()));
  }
  at::Tensor forward_reference(const PackedBatch& batch) override;
  std::string first_not_finite(const PackedBatch&) override { return ""; }
  void self_test() override { model_.self_test(); }

  const LmHead& lm_head() const override { return lm_head_; }
  const ModelConfig& config() const override { return config_; }
  std::uint64_t weight_bytes() const override { return model_.weight_bytes(); }
  const Queue* queue() const override { return &model_.queue(); }
  bool separates_prefill() const override { return true; }
  bool takes_drawn_ids(std::int64_t rows, std::int64_t tokens) const override {
    return model_.takes_drawn_ids(rows, tokens);
  }
  void use_cuda_graphs(bool on) override { model_.use_graphs(on); }

 private:
  // Last to go, when weights and work places are the allocator's again: what the next task asks the driver for must be there.
  struct GivesMemoryBack {  // NOLINT(cppcoreguidelines-special-member-functions): a member, never copied
    Queue queue;
    ~GivesMemoryBack();
  };
  void take_head();

  GivesMemoryBack at_the_end_;
  ModelConfig config_;
  Partition partition_;
  GpuModel model_;
  LmHead lm_head_;
};

}  // namespace magister::gpu
