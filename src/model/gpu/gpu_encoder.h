// GpuEncoder: an encoder on a GPU, whole, in f32. Products are those of decoders' passes (gpu_linear.h), norms and
// activations kernels, and attention is plain ATen code, all heads of a sequence in one call. The bits of a sequence
// are a function of the sequence alone: products give each row its own bits, and the shapes and addresses of
// attention's operands follow from the sequence's length.
// Legend: T packed tokens, D hidden, F MLP columns, H heads of E, L tokens of a sequence, N relative position vectors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
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

// Numbers of attention's scores at a time, unless one head has more: 256 MiB. Longer sequences go through attention in
// parts of some heads.
constexpr std::int64_t kEncoderScores = std::int64_t{1} << 26;
// Heads that a sequence of L tokens computes at a time, of H.
std::int64_t encoder_heads_at_once(std::int64_t H, std::int64_t L, std::int64_t N);

// Bytes of a pass beside the weights; one sequence may have all tokens.
std::uint64_t gpu_encoder_bytes(const ModelConfig& config, std::int64_t num_tokens);

class GpuEncoder final : public EncoderBackend {
 public:
  GpuEncoder(std::shared_ptr<const GpuEncoderWeights> weights, const Queue& queue);

  // Queued as a whole, so should_stop is asked once.
  at::Tensor forward(const PackedBatch& batch, const std::function<bool()>& should_stop) override {
    return should_stop && should_stop() ? at::Tensor() : run(batch, {}, {});
  }
  std::string first_not_finite(const PackedBatch&) override { return ""; }
  // Compares one layer with plain ATen code.
  void self_test() override;
  const LmHead& lm_head() const override { return lm_head_; }
  const Queue* queue() const override { return &queue_; }

 private:
  at::Tensor embed(const PackedBatch& batch, const at::Tensor& positions_T) const override;
  EncoderDistances distances_up_to(std::int64_t length) override;
  void run_layer(std::size_t layer, const PackedBatch& batch, const EncoderDistances& distances,
                 at::Tensor& hidden_TD) const override;
  at::Tensor pooler_product(const at::Tensor& hidden_RD) const override;
  at::Tensor head_product(const at::Tensor& pooled_RD) const override;

  at::Tensor attend(std::size_t layer, const PackedBatch& batch, const EncoderDistances& distances,
                    const at::Tensor& hidden_TD) const;
  // Writes the outputs of all heads of one sequence. qkv_LX: its rows.
  void attend_sequence(std::size_t layer, const at::Tensor& qkv_LX, const EncoderDistances& distances,
                       const at::Tensor& context_LD) const;
  // Adds delta_TD, which may be undefined, and norms the sum in place.
  void add_and_norm(const at::Tensor& hidden_TD, const at::Tensor& delta_TD, const Norm& norm) const;
  at::Tensor product_of(const GpuLinear& linear, const at::Tensor& x_TK) const;
  at::Tensor plain_layer(const PackedBatch& batch, const at::Tensor& block_TD);

  GivesMemoryBack at_the_end_;
  const std::shared_ptr<const GpuEncoderWeights> held_;
  const Queue queue_;
  LmHead lm_head_;
  std::vector<at::Tensor> relative_2HNE_;  // by layer: the relative position vectors as queries and keys of the heads
  EncoderDistances distances_;             // of up to `reach_` tokens
  std::int64_t reach_ = 0;
};

}  // namespace magister::gpu
