// ModelConfig: everything the layers need to know about a decoder-only transformer, whatever file it came from.
// Made from a Hugging Face config.json or from GGUF metadata by the family's own file (src/model/families/<family>.cpp);
// the layers read these fields and never ask for the family's name. Field names are Hugging Face's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/activation.h"

namespace magister {

// Rotary embedding: frequencies are rope_theta^(-2i/rotary_dim), changed as `kind` says.
struct RopeConfig {
  enum class Kind { kDefault, kLinear, kDynamic, kLlama3, kLongRope, kYarn, kExplicit };
  Kind kind = Kind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                                // linear, dynamic, llama3, yarn
  double low_freq_factor = 1.0;                       // llama3
  double high_freq_factor = 4.0;                      // llama3
  double beta_fast = 32.0, beta_slow = 1.0;           // yarn: turns within the original positions
  bool truncates = true;                              // yarn: waves between the two are counted from whole numbers
  std::int64_t original_max_position_embeddings = 0;  // llama3, dynamic, longrope, yarn
  std::vector<float> frequency_divisors;              // kExplicit: GGUF's rope_freqs.weight, [rotary_dim/2]
  std::vector<float> short_factor, long_factor;       // longrope: divisors below and above the original positions
  double attention_factor = 1.0;                      // longrope, yarn: of cosines and sines
};

// Where the RMS norms of attention and of the MLP stand: on what they read (Llama), on what they add to the residual stream (OLMo 2,
// EXAONE 4), or on both (Gemma 2).
enum class NormPlacement { kInput, kOutput, kBoth };
// Layer norms subtract the row's mean first (Cohere, GPT-NeoX).
enum class NormKind { kRms, kLayer };

// What an encoder has beside a decoder's fields: every token sees every other, norms with biases stand behind the sums of the residual
// stream, and a pooler over the first token stands before the head of labels (BERT and what came of it).
struct EncoderConfig {
  enum class Pooler { kRelu, kTanh, kGelu };  // what follows the pooler's product (DistilBERT, BERT, DeBERTa)
  Pooler pooler = Pooler::kTanh;
  std::int64_t token_types = 0;  // rows of the table of token types, of which a text's tokens have the first; 0: none
  // Disentangled attention (DeBERTa): scores of a query with the vector of its key's distance and of a key with that of its query's.
  // 2 * relative_span vectors; 0: none.
  std::int64_t relative_span = 0;
  std::int64_t position_buckets =
      0;  // distances from half of it on share vectors by their logarithm; 0: each has its own
  std::int64_t max_relative_positions = 0;  // where the last bucket ends
  // RoBERTa: the vector of a text's first token; tokens of padding inside it have the one before and are not counted.
  std::int64_t first_position = 0;
  bool content_to_position = false, position_to_content = false;
  bool relative_norm = false;  // a layer norm over the vectors of distances
};

struct ModelConfig {
  std::string family;  // "llama", "mistral", "qwen2", "qwen3": for people, never for branches in layers
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;  // of layer norms their layer_norm_eps
  NormKind norm_kind = NormKind::kRms;
  bool parallel_residual = false;  // attention and MLP read the same residual stream
  bool parallel_norms = false;     // each by a norm of its own (GPT-NeoX); else by the same (Cohere)
  bool norm_bias = false;          // layer norms add a bias
  bool learned_positions =
      false;              // a vector for each of max_position_embeddings positions is added to the embeddings (GPT-2)
  bool gated_mlp = true;  // down(act(gate(x)) * up(x)); false: down(act(up(x)))
  NormPlacement norm_placement = NormPlacement::kInput;
  Activation activation = Activation::kSilu;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;  // standard deviation of first weights, where there are none yet
  bool narrow_residuals = false;    // and those of products onto the residual stream over sqrt(2 layers) (GPT-2)
  bool qkv_bias = false;            // biases of q, k, v
  bool o_bias = false;
  bool mlp_bias = false;               // biases of gate, up, down
  bool qk_norm = false;                // RMS norm over head_dim on q and k before rope (Qwen3)
  bool qk_norm_of_all_heads = false;   // the same over all heads of q, and of k, at once (OLMo 2)
  bool norm_weights_plus_one = false;  // the file's norm weights w stand for 1 + w (Gemma)
  std::int64_t sliding_window = 0;     // 0: none. A query sees keys p with position - p < sliding_window
  std::vector<bool> layer_is_sliding;  // empty: all layers slide when sliding_window > 0
  RopeConfig rope;
  std::optional<RopeConfig> sliding_rope;    // of the layers that slide, where theirs is another (Gemma 3)
  std::int64_t rotary_dim = 0;               // the head's first numbers that turn; 0: all of head_dim
  std::vector<bool> layer_has_rope;          // empty: all
  double embedding_multiplier = 1.0;         // of the embeddings on their way in
  bool rounds_embedding_multiplier = false;  // to the embeddings' type first (Gemma)
  double attention_multiplier = 0.0;         // of attention scores; 0: 1 / sqrt(head_dim)
  double attn_logit_softcapping = 0.0;       // scores become cap * tanh(score / cap); 0: none
  double final_logit_softcapping = 0.0;      // logits likewise
  double clip_qkv = 0.0;            // q, k and v are cut to +-clip_qkv before the rotary embedding; 0: not (OLMoE)
  double logit_scale = 1.0;         // of logits, before their cap
  bool fused_qkv_proj = false;      // files hold q, k and v as one tensor, rows of q first (Phi-3)
  bool fused_qkv_by_head = false;   // the same with q, k and v of the first head first (GPT-NeoX)
  bool fused_gate_up_proj = false;  // and gate and up, rows of gate first
  // A mixture of experts: in layers that are sparse a router chooses num_experts_per_tok of num_experts gated MLPs for each token.
  std::int64_t num_experts = 0;  // 0: none
  std::int64_t num_experts_per_tok = 0;
  std::int64_t moe_intermediate_size = 0;  // columns of an expert; intermediate_size: of the MLP of the other layers
  bool norm_topk_prob = false;             // the chosen experts' probabilities are divided by their sum
  std::vector<bool> layer_is_sparse;       // empty: all, where there are experts
  bool stacked_experts = false;  // files hold one weight of all experts as one tensor, [experts, rows, columns] (GGUF)
  // Files hold gate and up of all experts as one tensor, [experts, inputs, 2 outputs], their columns in turn, and down as [experts, inputs,
  // outputs] (gpt-oss).
  bool fused_experts = false;
  bool expert_bias = false;                   // biases of the router and of experts' gate, up and down
  double swiglu_alpha = 0, swiglu_limit = 0;  // gate * sigmoid(alpha * gate) * (up + 1), of gate up to the limit and up
                                              // within +-limit; 0: as `activation` says
  // What config.json asks of training alone and is not computed: transformers' key; empty: nothing. Inference does not look at it.
  std::string untrained_key{};
  bool attention_sinks = false;  // a learned score a head joins the softmax of a row's scores, with no value (gpt-oss)
  std::int64_t bos_token_id = -1, eos_token_id = -1;
  // Of a sequence classifier or reward model: names of the numbers that its head gives, in order; empty: a language model.
  std::vector<std::string> labels;
  std::int64_t pad_token_id = -1;  // of config.json: a head of labels reads the last token that is another
  std::optional<EncoderConfig>
      encoder;  // an encoder, which is a classifier and reads the first token; empty: a decoder

  bool is_classifier() const { return !labels.empty(); }
  // Rows of the table of learned positions, of which an encoder may not use the first ones.
  std::int64_t position_rows() const { return max_position_embeddings + (encoder ? encoder->first_position : 0); }
  // Rows of the head: the vocabulary, or the labels.
  std::int64_t head_outputs() const { return is_classifier() ? static_cast<std::int64_t>(labels.size()) : vocab_size; }

  bool slides(std::int64_t layer) const {
    return sliding_window > 0 && (layer_is_sliding.empty() || layer_is_sliding[static_cast<std::size_t>(layer)]);
  }
  // Whether the layer has experts in the place of one MLP.
  bool is_sparse(std::int64_t layer) const {
    return num_experts > 0 && (layer_is_sparse.empty() || layer_is_sparse[static_cast<std::size_t>(layer)]);
  }
  // 0 in a layer without rotary embedding.
  std::int64_t rotary_dim_of(std::int64_t layer) const {
    const bool turns = layer_has_rope.empty() || layer_has_rope[static_cast<std::size_t>(layer)];
    return !turns ? 0 : rotary_dim > 0 ? rotary_dim : head_dim;
  }
  // Number of parameters, exact (biases, norms, untied head included).
  std::uint64_t num_parameters() const;
  // Those that a token is multiplied by: of each layer's experts the chosen ones alone. Products of a token are 2 FLOPs each; attention's
  // own are not in it, a few hundredths at the lengths of chats.
  std::uint64_t parameters_a_token() const;
};

// Where each weight of the model stands in its file. Hugging Face's names and GGUF's differ, and llama-family GGUF files
// hold q and k rows in another rotary order, undone on reading (see WeightSource).
struct TensorNames {
  std::string embed_tokens, norm, lm_head;  // lm_head empty when tied; of a classifier its `score`
  std::string embed_positions, norm_bias;   // empty: none
  // Of an encoder; empty: none.
  std::string embed_token_types, embed_norm, embed_norm_bias, relative, relative_norm, relative_norm_bias;
  std::string pooler, pooler_bias, lm_head_bias;
  struct Layer {
    std::string attention_input_norm, attention_output_norm, mlp_input_norm, mlp_output_norm;  // empty: none
    std::string attention_input_norm_bias, mlp_input_norm_bias;                                // empty: none
    std::string attention_output_norm_bias, mlp_output_norm_bias;                              // empty: none
    std::string q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj;                 // weights
    std::string q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;                 // empty: none
    std::string q_norm, k_norm, sinks;                                                         // empty: none
    std::string router, router_bias;                                                           // empty: no experts
    struct Expert {
      std::string gate_proj, up_proj, down_proj;
      std::string gate_bias, up_bias, down_bias;  // empty: none
    };
    std::vector<Expert> experts;
  };
  std::vector<Layer> layers;
  std::vector<std::string>
      ignored;  // tensors that may be in the file and are not weights (rotary inv_freq, rope_freqs)
  // GGUF llama files, GLM-4: rows of q and k stand as [head, E/2, 2] pairs instead of [head, 2, E/2] halves; of the first rotary_dim
  // rows of a head where not all of it turns.
  bool interleaved_rope_rows = false;
  bool transposed_products = false;  // weights of the layers' products stand as [in, out] (GPT-2)
};

struct ModelDescription {
  ModelConfig config;
  TensorNames names;
};

// Of a family: transformers' class of its layers with a head of labels; empty: there is none.
std::string classifier_architecture(const ModelConfig& config);
// The same layers with a head of labels, score.weight, as that class has it with num_labels: what a reward model is that begins as a
// language model. A model with a head of labels stays as it is. Error(kConfig) where there is no such class.
ModelDescription with_reward_head(const ModelDescription& description, std::int64_t num_labels = 1);

// Reads and checks config and names for the model at `path` (a .gguf file or a folder) whose tensors are `file`:
// unknown architecture, a missing or an unused tensor, and a shape that contradicts the config are refused by name
// (Error(kData)).
ModelDescription describe_model(const std::string& path, const TensorFile& file);
// Same from config.json alone, no tensor file (magister plan --config-only).
ModelDescription describe_config(const std::string& config_json_path);

}  // namespace magister
