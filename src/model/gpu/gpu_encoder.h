// GpuEncoder: an encoder on a GPU, whole, in f32. Products are those of decoders' passes (gpu_linear.h), norms and
// activations kernels, and attention is one kernel for all sequences and heads (encoder_attention_kernel.h). The bits
// of a sequence are a function of the sequence alone: products and kernels give each row its own bits.
// Legend: T packed tokens, D hidden, F MLP columns, H heads of E, L tokens of a sequence, N relative position vectors,
// B blocks of queries.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/encoder_backend.h"
#include "model/gpu/device_memory.h"
#include "model/gpu/gpu_linear.h"

namespace magister::gpu {

struct GpuEncoderWeights {
  struct Layer {
    GpuLinear qkv, output, up, down;
  };
  EncoderWeights all;  // on the device, plain
  // The products of `all`, which share its memory.
  std::vector<Layer> layers;
  GpuLinear pooler, head;
};

// Reads the whole model onto the device, and chooses the products' algorithms. When the last user releases the weights,
// their memory returns to the driver. Local.
std::shared_ptr<const GpuEncoderWeights> load_gpu_encoder(const ModelDescription& description, const TensorFile& file,
                                                          ThreadPool& pool, const Queue& queue, const LoadHook& hook);

// The blocks of queries of a pass, [B, 3] i32, on the CPU; see EncoderBlock.
at::Tensor encoder_blocks(const PackedBatch& batch);

// Bytes of a pass in addition to the weights.
std::uint64_t gpu_encoder_bytes(const ModelConfig& config, std::int64_t num_tokens);

class GpuEncoder final : public EncoderBackend {
 public:
  GpuEncoder(std::shared_ptr<const GpuEncoderWeights> weights, const Queue& queue);

  // Queued as a whole, so should_stop is asked once.
  at::Tensor forward(const PackedBatch& batch, const std::function<bool()>& should_stop) override {
    return should_stop && should_stop() ? at::Tensor() : run(batch, {}, {});
  }
  // Compares one layer with plain ATen code.
  void self_test() override;
  const LmHead& lm_head() const override { return lm_head_; }
  const Queue* queue() const override { return &queue_; }

 private:
  at::Tensor embed(const PackedBatch& batch, const at::Tensor& positions_T) const override;
  Pass begin_pass(const PackedBatch& batch, std::int64_t longest) override;
  void run_layer(std::size_t layer, const Pass& pass, at::Tensor& hidden_TD) const override;
  at::Tensor pooler_product(const at::Tensor& hidden_RD) const override;
  at::Tensor head_product(const at::Tensor& pooled_RD) const override;

  at::Tensor attend(std::size_t layer, const Pass& pass, const at::Tensor& hidden_TD) const;
  void start_attention(std::size_t layer, const Pass& pass, const at::Tensor& qkv_TX,
                       const at::Tensor& context_TD) const;
  // Adds delta_TD, which may be undefined, and norms the sum in place.
  void add_and_norm(const at::Tensor& hidden_TD, const at::Tensor& delta_TD, const Norm& norm) const;
  at::Tensor product_of(const GpuLinear& linear, const at::Tensor& x_TK) const;
  // The first layer in plain ATen code.
  at::Tensor plain_layer(const PackedBatch& batch, const at::Tensor& block_TD) const;
  // Attention of one sequence in that layer. qkv_LX: its rows; -> [L, D].
  at::Tensor plain_attention(const at::Tensor& qkv_LX) const;

  GivesMemoryBack at_the_end_;
  const std::shared_ptr<const GpuEncoderWeights> held_;
  const Queue queue_;
  LmHead lm_head_;
  std::vector<at::Tensor> relative_NX_;  // by layer: the relative position vectors as queries and keys, [N, 2 D]
  // Numbers of the vectors for the distances of sequences of up to `reach_` tokens, [2 reach - 1] i32, rising.
  at::Tensor vectors_;
  std::int64_t reach_ = 0;
};

}  // namespace magister::gpu
