// EncoderBackend: what an encoder with a classification head does alike on CPUs and GPUs: embeddings, layers in which
// every token attends to every other, pooler and head, all in f32. It has no KV cache and is not sharded. Source:
// transformers' BERT, DistilBERT, RoBERTa and DeBERTa-v2 as sequence classifiers.
// Legend: T packed tokens, D hidden, R rows of first tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "model/encoder_attention.h"
#include "model/encoder_weights.h"
#include "model/first_not_finite.h"
#include "model/model_backend.h"

namespace magister {

class EncoderBackend : public ModelBackend {
 public:
  // The output of the last layer; there is no last norm. The bits of a sequence do not depend on its neighbours.
  at::Tensor forward(const PackedBatch& batch, const std::function<bool()>& should_stop) override {
    return run(batch, should_stop);
  }
  // Applies pooler and head to the rows of first tokens.
  at::Tensor logits(const at::Tensor& hidden_RD) const override;
  std::string first_not_finite(const PackedBatch& batch) override;

  const LmHead& lm_head() const override { return weights_.head; }
  const ModelConfig& config() const override { return config_; }
  std::uint64_t weight_bytes() const override { return weights_.num_bytes; }
  bool separates_prefill() const override { return false; }
  bool shares_prefixes() const override { return false; }

  // An encoder generates no text and is not trained: these throw Error(kInternal).
  at::Tensor forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache) override;
  KvCache make_cache(std::int64_t num_pages, std::int64_t num_texts) const override;
  at::Tensor forward_reference(const PackedBatch& batch) override;

 protected:
  using Norm = EncoderWeights::Norm;
  // Shared by the layers of a pass.
  struct Pass {
    const PackedBatch& batch;
    at::Tensor vectors_LL{};  // on a CPU: from vectors_between() for the longest sequence
    at::Tensor blocks_B3{};   // on a GPU: i32 on the device, see EncoderBlock
  };

  // weights are kept by reference.
  explicit EncoderBackend(const EncoderWeights& weights) : weights_(weights), config_(weights.config) {}

  // should_stop: asked before every layer. watch: looks at the embeddings and at each layer's output.
  at::Tensor run(const PackedBatch& batch, const std::function<bool()>& should_stop, FirstNotFinite* watch = nullptr);

  // [T, D], normed. positions_T: rows of positions_PD, on the CPU.
  virtual at::Tensor embed(const PackedBatch& batch, const at::Tensor& positions_T) const = 0;
  // longest: tokens of the longest sequence.
  virtual Pass begin_pass(const PackedBatch& batch, std::int64_t longest) = 0;
  // In place.
  virtual void run_layer(std::size_t layer, const Pass& pass, at::Tensor& hidden_TD) const = 0;
  // Products of a few rows; the bits of a row do not depend on the others.
  virtual at::Tensor pooler_product(const at::Tensor& hidden_RD) const = 0;
  virtual at::Tensor head_product(const at::Tensor& pooled_RD) const = 0;

  const EncoderWeights& weights_;
  const ModelConfig& config_;

 private:
  at::Tensor positions_of(const PackedBatch& batch) const;  // [T] i32, rows of positions_PD
};

}  // namespace magister
