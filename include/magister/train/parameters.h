// The parameters of a model in training: all in one flat f32 tensor, so that gradients, moments, sums over ranks and
// checkpoints are flat tensors of the same layout. A parameter is a tensor of the model's file, under its name: a
// tensor that the file fuses (Phi-3's q, k and v) stays fused, and one that it stores as [in, out] (GPT-2's weights)
// stays so. With LoRA the trained parameters are an adapter's (train/lora.h), in a flat tensor of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"
#include "magister/model/parameter_table.h"

namespace magister {

class ThreadPool;

struct TrainParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0, count = 0;  // in the flat tensor
  bool decays = true;                  // weight decay
  double limit = 0;                    // numbers are clipped to +-limit before an update; 0: they are not
};

// A view of a contiguous tensor as TensorFile sees it: [rows, columns].
at::Tensor as_rows(const at::Tensor& tensor);

// Named tensors in one flat tensor. Each begins at a multiple of 16 numbers (64 bytes), because a product's bits may
// depend on the alignment of its operands.
class FlatLayout {
 public:
  const std::vector<TrainParameter>& all() const { return all_; }
  std::int64_t flat_size() const { return flat_size_; }  // with padding, which stays 0
  std::int64_t num_parameters() const;
  // The parameter's part of a flat tensor, in its shape.
  at::Tensor view(const at::Tensor& flat, std::size_t index) const;

 protected:
  // Norms and biases do not decay, as in Hugging Face's Trainer: these are the tensors of one dimension, unless
  // `decays` is given. limit: see TrainParameter.
  std::size_t add(const std::string& name, const std::vector<std::int64_t>& shape, std::optional<bool> decays = {},
                  double limit = 0);

 private:
  std::vector<TrainParameter> all_;
  std::int64_t flat_size_ = 0;
};

// First weights of a new classification head: normal numbers, each drawn from seed and position. deviation:
// transformers' initializer_range.
struct NewHead {
  std::uint64_t seed = 0;
  double deviation = 0.02;
};

class ParameterLayout : public FlatLayout {
 public:
  // Throws Error(kConfig) naming what cannot be trained yet. Local.
  explicit ParameterLayout(const ModelDescription& description);

  const ModelDescription& description() const { return description_; }
  std::size_t embeddings() const { return embeddings_; }
  std::optional<std::size_t> positions() const { return positions_; }  // the table of learned positions
  // The last norm: its weight, and its bias if it has one; with AltUp then the products that join the stream.
  const std::vector<std::size_t>& norm() const { return norm_; }
  // The weights outside the layers of which vectors by layer are made; nothing: the model has none.
  struct PerLayer {
    std::size_t table = 0, projection = 0, norm = 0;
  };
  const std::optional<PerLayer>& per_layer() const { return per_layer_; }
  std::size_t head() const { return head_; }  // the embeddings if tied
  std::optional<std::size_t> head_bias() const { return head_bias_; }
  // The parameters of a layer, each once, and which parameter holds each weight of its table. A norm of the embeddings,
  // weight and bias, follows the first layer's own; so do the products that make AltUp's stream.
  struct Layer {
    std::vector<LayerParameter> table;
    std::vector<std::size_t> parameters;
    std::vector<std::size_t> holder;  // by row of the table: index in parameters
  };
  const std::vector<Layer>& layers() const { return layers_; }

  // Reads the file into flat, f32 [flat_size()], every number once; the padding between parameters is not written. A
  // classification head that the file lacks is drawn. Throws as TensorFile does, and Error(kData) for weights that are
  // not finite. The pool's threads share the rows. part of parts: for ranks that read into shared memory, each its
  // part. Local.
  void read(const TensorFile& file, at::Tensor& flat, const NewHead& new_head = {}, ThreadPool* pool = nullptr,
            int part = 0, int parts = 1) const;

 private:
  ModelDescription description_;
  std::vector<Layer> layers_;
  std::size_t embeddings_ = 0, head_ = 0;
  std::optional<std::size_t> positions_, head_bias_;
  std::optional<PerLayer> per_layer_;
  std::vector<std::size_t> norm_;
};

}  // namespace magister
