// EncoderModel: an encoder on a CPU. The threads share products by row tiles, and attention by pairs of sequence and
// head.
// Legend: T packed tokens, D hidden, K inputs of a product, L tokens of a sequence, X outputs of q, k and v, N relative
// position vectors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "model/encoder_backend.h"

namespace magister {

class EncoderModel final : public EncoderBackend {
 public:
  // pool is kept by reference. weights: from load_cpu_encoder().
  EncoderModel(std::shared_ptr<const EncoderWeights> weights, ThreadPool& pool)
      : EncoderBackend(*weights), held_(std::move(weights)), pool_(pool) {}

  void self_test() override;
  const gpu::Queue* queue() const override { return nullptr; }

 private:
  using Layer = EncoderWeights::Layer;

  at::Tensor embed(const PackedBatch& batch, const at::Tensor& positions_T) const override;
  Pass begin_pass(const PackedBatch& batch, std::int64_t longest) override {
    return {.batch = batch, .vectors_LL = vectors_between(*config_.encoder, longest)};
  }
  void run_layer(std::size_t layer, const Pass& pass, at::Tensor& hidden_TD) const override;
  at::Tensor pooler_product(const at::Tensor& hidden_RD) const override { return product(hidden_RD, weights_.pooler); }
  at::Tensor head_product(const at::Tensor& pooled_RD) const override {
    return product(pooled_RD, weights_.head.projection);
  }
  at::Tensor attend(const Layer& layer, const Pass& pass, const at::Tensor& hidden_TD) const;
  // qkv_LX: the rows of one sequence; distances_NX: the same product of the relative position vectors.
  EncoderHeads head_of(const at::Tensor& qkv_LX, const at::Tensor& distances_NX, std::int64_t head) const;
  at::Tensor product(const at::Tensor& x_TK, const Linear& linear) const;
  // hidden_TD = norm(hidden_TD + output_TD), in place, by row tiles.
  void add_and_norm(at::Tensor& hidden_TD, const at::Tensor& output_TD, const Norm& norm) const;

  const std::shared_ptr<const EncoderWeights> held_;
  ThreadPool& pool_;
};

// Bytes of a pass in addition to the weights. One sequence may have all tokens.
std::uint64_t cpu_encoder_bytes(const ModelConfig& config, std::int64_t num_tokens, int num_threads);

// Loads the whole model, packed for the CPU's products. Local (reads files only).
EncoderWeights load_cpu_encoder(const ModelDescription& description, const TensorFile& file, ThreadPool& pool,
                                const LoadHook& hook);

}  // namespace magister
