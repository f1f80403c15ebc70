// ModelBackend: how one kind of device holds and runs a shard of a model. Transformer owns one, and documents what each
// function promises. Code above it does not depend on the kind, except through the functions of this file. A new kind
// of device is another subclass.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "magister/model/batch.h"
#include "magister/model/transformer.h"

namespace magister {

class ModelBackend {
 public:
  virtual ~ModelBackend() = default;

  virtual at::Tensor forward(const PackedBatch& batch, const std::function<bool()>& should_stop) = 0;
  virtual at::Tensor forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache) = 0;
  virtual KvCache make_cache(std::int64_t num_pages, std::int64_t num_texts) const = 0;
  virtual at::Tensor logits(const at::Tensor& hidden_RD) const = 0;
  // In plain code. A backend without it throws Error(kInternal).
  virtual at::Tensor forward_reference(const PackedBatch& batch) = 0;
  // Empty: the backend does not examine its passes.
  virtual std::string first_not_finite(const PackedBatch& batch) = 0;
  virtual void self_test() = 0;

  virtual const LmHead& lm_head() const = 0;
  virtual const ModelConfig& config() const = 0;
  virtual std::uint64_t weight_bytes() const = 0;
  virtual bool has_codes() const { return false; }
  virtual bool multiplies_fp8() const { return false; }

  // See Transformer.
  virtual const gpu::Queue* queue() const = 0;
  virtual bool separates_prefill() const = 0;
  // True if passes compute PackedBatch::read_rows alone. Otherwise they get no such rows, and Transformer chooses them
  // from the result.
  virtual bool narrows_last_layer() const { return false; }
  virtual bool takes_drawn_ids(std::int64_t rows, std::int64_t tokens) const { return false; }
  virtual bool shares_prefixes() const = 0;
  virtual void use_cuda_graphs(bool on) {}
  virtual void use_cudnn_attention() {}
  virtual void use_throughput_decoding() {}
  virtual void use_fp8_cache() {}
};

// Those of PackedBatch::read_rows out of all rows of a pass, on their device.
at::Tensor rows_that_are_read(const PackedBatch& batch, const at::Tensor& hidden_TD);

}  // namespace magister
