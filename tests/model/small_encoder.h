// Small encoders of random weights, in both kinds of positions, and the logits of texts.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"
#include "model/random_weights_of.h"

namespace magister {

// BERT with learned positions and types of tokens, and a vocabulary of 96.
inline ModelConfig small_bert() {
  ModelConfig config = small_llama();
  config.family = "bert";
  config.hidden_size = 48;
  config.num_hidden_layers = 3;
  config.num_attention_heads = config.num_key_value_heads = 4;
  config.head_dim = 12;
  config.max_position_embeddings = 5000;
  config.learned_positions = true;
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = config.qkv_bias = config.o_bias = config.mlp_bias = true;
  config.norm_placement = NormPlacement::kOutput;
  config.gated_mlp = false;
  config.activation = Activation::kGelu;
  config.layer_has_rope.assign(3, false);
  config.rotary_dim = 0;
  config.labels = {"bad", "good"};
  config.encoder = EncoderConfig{};
  config.encoder->token_types = 2;
  return config;
}

// DeBERTa v3 with buckets of distances.
inline ModelConfig small_deberta() {
  ModelConfig config = small_bert();
  config.family = "deberta-v2";
  config.learned_positions = false;
  EncoderConfig& encoder = *config.encoder;
  encoder.pooler = EncoderConfig::Pooler::kGelu;
  encoder.token_types = 0;
  encoder.relative_span = encoder.position_buckets = 16;
  encoder.max_relative_positions = 512;
  encoder.content_to_position = encoder.position_to_content = encoder.relative_norm = true;
  return config;
}

// The weights of a config, and models of them.
class SmallEncoder {
 public:
  explicit SmallEncoder(const ModelConfig& config, int threads = 2) : pool_(threads) {
    at::manual_seed(3);
    description.config = config;
    description.names = hf_tensor_names(config);
    add_random_weights(file_, description, 0.2);
    // Around 0: beside biases of 0.5 to 1.5, texts would differ little behind a pooler's tanh.
    for (const ExpectedTensor& tensor : expected_tensors(config, description.names))
      if (tensor.name.ends_with("bias")) file_.values(tensor.name) -= 1;
  }
  at::Tensor& values(const std::string& tensor) { return file_.values(tensor); }
  Transformer on_cpu() { return {description, file_, *group_, pool_, at::kFloat}; }
  Transformer on_gpu(const gpu::Queue& queue) { return {description, file_, *group_, pool_, at::kFloat, {}, queue}; }

  ModelDescription description;

 private:
  MemoryTensorFile file_;
  std::unique_ptr<ProcessGroup> group_ = make_single_process_group();
  ThreadPool pool_;
};

// Logits of the first tokens, one row a text, on the CPU.
inline at::Tensor first_logits(Transformer& model, const std::vector<std::vector<TokenId>>& texts) {
  const PackedBatch batch = pack_sequences(texts);
  const std::vector<std::int64_t> first(batch.cu_seqlens.begin(), batch.cu_seqlens.end() - 1);
  const at::Tensor hidden_TD = model.forward(batch);
  return model.logits(hidden_TD.index_select(0, at::tensor(first, at::kLong).to(hidden_TD.device()))).cpu();
}

}  // namespace magister
