// EncoderModel: an encoder with a classification head on a CPU, in f32: embeddings, layers in which every token attends
// to every other, pooler and head. It has no KV cache and is not sharded. Source: transformers' BERT, DistilBERT and
// DeBERTa-v2 as sequence classifiers.
// Legend: T packed tokens, D hidden, F MLP columns, H heads of E, L tokens of a sequence, N relative position vectors.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "model/model_backend.h"

namespace magister {

struct EncoderWeights {
  struct Norm {
    at::Tensor weight_D, bias_D;
  };
  struct Layer {
    Linear qkv, output, up, down;
    Norm attention_norm, mlp_norm;
  };
  ModelConfig config;
  at::Tensor words_VD, positions_PD, types_XD, relative_ND;  // f32; undefined: none
  Norm embed_norm;
  std::vector<Layer> layers;
  Linear pooler;
  LmHead head;
  std::uint64_t num_bytes = 0;
};

// Loads the whole model. Local (reads files only).
EncoderWeights load_encoder_weights(const ModelDescription& description, const TensorFile& file, ThreadPool& pool,
                                    const LoadHook& hook);

class EncoderModel final : public ModelBackend {
 public:
  // pool is kept by reference.
  EncoderModel(std::shared_ptr<const EncoderWeights> weights, ThreadPool& pool)
      : held_(std::move(weights)), weights_(*held_), config_(weights_.config), pool_(pool) {}

  // The output of the last layer; there is no last norm. The bits of a sequence do not depend on its neighbours.
  at::Tensor forward(const PackedBatch& batch, const std::function<bool()>& should_stop) override;
  // Applies pooler and head to the rows of first tokens.
  at::Tensor logits(const at::Tensor& hidden_RD) const override;
  std::string first_not_finite(const PackedBatch& batch) override;
  void self_test() override;

  const LmHead& lm_head() const override { return weights_.head; }
  const ModelConfig& config() const override { return config_; }
  std::uint64_t weight_bytes() const override { return weights_.num_bytes; }
  const gpu::Queue* queue() const override { return nullptr; }
  bool separates_prefill() const override { return false; }
  bool shares_prefixes() const override { return false; }

  // An encoder generates no text and is not trained: these throw Error(kInternal).
  at::Tensor forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache) override;
  KvCache make_cache(std::int64_t num_pages) const override;
  at::Tensor forward_reference(const PackedBatch& batch) override;

 private:
  using Norm = EncoderWeights::Norm;
  using Layer = EncoderWeights::Layer;
  // The relative position vector for query i and key j, [L, L] i64, for the longest sequence of a pass.
  struct Distances {
    at::Tensor content_to_position_LL, position_to_content_LL;
  };

  at::Tensor run(const PackedBatch& batch, const std::function<bool()>& should_stop,
                 const std::function<void(std::int64_t, const at::Tensor&)>& after_layer) const;
  at::Tensor embed(const PackedBatch& batch) const;
  at::Tensor positions_of(const PackedBatch& batch) const;  // [T] i32, rows of positions_PD
  Distances distances_of(const PackedBatch& batch) const;
  void run_layer(const Layer& layer, const PackedBatch& batch, const Distances& distances, at::Tensor& hidden_TD) const;
  at::Tensor attend(const Layer& layer, const PackedBatch& batch, const Distances& distances,
                    const at::Tensor& hidden_TD) const;
  // [L, E] of one head of one sequence. qkv_LX: the rows of the sequence; distances_NX: the same product of the
  // relative position vectors.
  at::Tensor attend_head(const at::Tensor& qkv_LX, const at::Tensor& distances_NX, const Distances& distances,
                         std::int64_t head) const;
  at::Tensor product(const at::Tensor& x_TK, const Linear& linear) const;
  // hidden_TD = norm(hidden_TD + output_TD), in place, by row tiles.
  void add_and_norm(at::Tensor& hidden_TD, const at::Tensor& output_TD, const Norm& norm) const;
  at::Tensor normed(const at::Tensor& x_TD, const Norm& norm) const;

  const std::shared_ptr<const EncoderWeights> held_;
  const EncoderWeights& weights_;
  const ModelConfig& config_;
  ThreadPool& pool_;
};

}  // namespace magister
