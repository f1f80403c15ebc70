// ModelConfig: everything that the layers need to know about a transformer, whatever file it came from.
// The file of the model's family makes it from a Hugging Face config.json or from GGUF metadata
// (src/model/families/<family>.cpp). The layers read these fields and never the family's name. Field names are Hugging
// Face's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/activation.h"

namespace magister {

// Rotary embedding: frequencies are theta^(-2i/rotary_dim), scaled according to `kind`.
struct RopeConfig {
  enum class Kind { kDefault, kLinear, kDynamic, kLlama3, kLongRope, kYarn, kProportional, kExplicit };
  Kind kind = Kind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                       // linear, dynamic, llama3, yarn, proportional
  double turning_part = 1.0;                 // proportional: the part of a head that turns; other frequencies are 0
  double low_freq_factor = 1.0;              // llama3
  double high_freq_factor = 4.0;             // llama3
  double beta_fast = 32.0, beta_slow = 1.0;  // yarn: rotations within the original positions
  // yarn: the limits of the interpolation range are rounded to whole dimensions.
  bool truncates = true;
  std::int64_t original_max_position_embeddings = 0;  // llama3, dynamic, longrope, yarn
  std::vector<float> frequency_divisors;              // kExplicit: GGUF's rope_freqs.weight, [rotary_dim/2]
  // longrope: frequency divisors for sequences up to the original positions, and for longer ones.
  std::vector<float> short_factor, long_factor;
  double attention_factor = 1.0;  // longrope, yarn: factor of cosines and sines
  // dynamic, longrope: if > 0, every text has the frequencies of a text with this number of tokens. 0: those of its own
  // length, as transformers computes one text.
  std::int64_t fixed_length = 0;
  bool turns_back = false;  // queries and keys turn the other way: all frequencies are negative (NanoChat)
};

// Position of the norms of attention and MLP: on the block's input (Llama), on its output before the residual sum (OLMo
// 2), or on both (Gemma 2). Encoders use kOutput for a norm after the residual sum.
enum class NormPlacement { kInput, kOutput, kBoth };
// kLayer subtracts the mean of the row first (Cohere, GPT-NeoX).
enum class NormKind { kRms, kLayer };

// Fields that only encoders have (BERT and its successors). In an encoder every token attends to every other, layer
// norms with biases follow each residual sum, and a pooler reads the first token before the classification head.
struct EncoderConfig {
  enum class Pooler { kRelu, kTanh, kGelu };  // activation after the pooler's product (DistilBERT, BERT, DeBERTa)
  Pooler pooler = Pooler::kTanh;
  std::int64_t token_types = 0;  // rows of the token type table; all tokens have type 0; 0: no table
  // Disentangled attention (DeBERTa) adds products of queries and keys with relative position vectors. This is half the
  // number of these vectors; 0: no such attention.
  std::int64_t relative_span = 0;
  // Distances greater than half of this number share vectors in logarithmic buckets; 0: each distance has its own
  // vector.
  std::int64_t position_buckets = 0;
  std::int64_t max_relative_positions = 0;  // the distance at which the last bucket ends
  // RoBERTa: the row of the position table for a text's first token. Padding tokens inside a text have the row before
  // it and are not counted.
  std::int64_t first_position = 0;
  bool content_to_position = false, position_to_content = false;
  bool relative_norm = false;  // a layer norm over the relative position vectors
};

// How a router turns its logits into experts and their weights.
struct RouterConfig {
  // kSparseMixer: experts are chosen one after another; the weight of each is its share of a softmax over those that
  // are left and whose logits are near the best (see `margin`). Two experts a token (PhiMoE, arXiv 2409.12136).
  enum class Scores { kSoftmax, kSigmoid, kSparseMixer };
  Scores scores = Scores::kSoftmax;
  // kSparseMixer: a logit is near the best if it is less by at most 2 * margin * max(its absolute value, the best).
  double margin = 0.0;
  bool choice_bias = false;  // each expert has a bias that is added to its score for the choice, not for the weight
  bool chooses_by_logits = false;   // the bias is added to the logit instead of the score (Kolibri 1)
  bool choice_bias_is_row = false;  // files hold these biases as [1, experts] (ERNIE 4.5)
  // Experts are divided into groups in order. Those of the chosen_groups best groups can be chosen; a group counts as
  // the sum of its two best scores.
  std::int64_t groups = 1, chosen_groups = 1;
  bool groups_by_best = false;  // a group counts as its best score alone (DeepSeek-V2)
  double scaling = 1.0;         // factor of the weights
  double least_sum = 0.0;       // weights that are divided by their sum are divided by at least this
  bool weighs_inputs = false;   // a weight multiplies the expert's input instead of its output (Llama 4)
  double shared_weight = 1.0;   // weight of each shared expert, in models without a gate for them
  bool is_plain() const {
    return scores == Scores::kSoftmax && !choice_bias && groups == 1 && scaling == 1.0 && least_sum == 0.0 &&
           !weighs_inputs;
  }
};

// The lightning indexer of sparse latent attention (DSA). It scores a query's keys with heads of its own, and attention
// sees the best top_k of them. A key's score is the sum over the indexer's heads of weight * max(0, query * key): a
// token has a weight for each head, and one key for all. A query with at most top_k keys sees all of them. Of equal
// scores the lower position is chosen. Source: DeepSeek-V3.2-Exp's report; transformers' DeepseekV32Indexer.
struct IndexerConfig {
  static constexpr double kNormEps = 1e-6;  // of the layer norm on keys
  std::int64_t heads = 0, head_dim = 0;     // the first LatentConfig::rope_dim numbers of a head are rotated
  std::int64_t top_k = 0;
  bool rope_pairs = false;            // files hold rotated rows as pairs [E/2, 2]
  std::vector<bool> layer_chooses{};  // empty: all. Other layers see the keys that the last such layer chose (GLM-5)
};

// Latent attention (MLA): keys and values of all heads are products of one short vector per token, the latent. A head's
// query and key have nope_dim numbers without rotation, then rope_dim rotated ones; the keys' rotated part is the same
// for all heads. A cache holds a token's latent and rotated key.
struct LatentConfig {
  static constexpr double kNormEps = 1e-6;  // of the norms on the latent and on the queries' short vector
  std::int64_t query_rank = 0;              // numbers between the two products of queries; 0: queries are one product
  std::int64_t rank = 0;                    // numbers of the latent
  std::int64_t nope_dim = 0, rope_dim = 0;  // together ModelConfig::head_dim
  std::int64_t value_dim = 0;               // numbers of a head's values
  bool rope_pairs = true;                   // files hold rotated rows as pairs [E/2, 2]
  std::optional<IndexerConfig> indexer{};   // unset: a query sees all earlier keys
  std::int64_t token_width() const { return rank + rope_dim; }
};

// Linear attention by the gated delta rule (Gated DeltaNet). Queries, keys and values go through SiLU of a convolution
// over the last `taps` tokens of each channel, and queries and keys are divided by their length. Each value head has a
// state, key_dim x value_dim numbers: a token multiplies it by a decay, adds to it what its value differs from that of
// its key, times a strength, and reads it by its query. A head's output is normed and times SiLU of a gate.
// Source: Yang et al., Gated Delta Networks, arXiv 2412.06464; transformers' Qwen3_5GatedDeltaNet.
struct DeltaConfig {
  static constexpr double kLengthEps = 1e-6;    // is added to the square of a length
  std::int64_t key_heads = 0, value_heads = 0;  // a key head, and its queries, serve as many value heads in turn
  std::int64_t key_dim = 0, value_dim = 0;
  std::int64_t taps = 0;
  bool by_key_head = false;       // files hold rows of a key head and its value heads in turn (Qwen3-Next)
  std::vector<bool> layer_has{};  // which layers have this attention
  std::int64_t heads_a_key() const { return value_heads / key_heads; }
  // Numbers of the state of a value head, in memory: value_dim is rounded up to whole vectors of 16.
  std::int64_t state_numbers() const { return key_dim * ((value_dim + 15) / 16 * 16); }
};

// AltUp: the residual stream of a token is `inputs` vectors. A layer predicts all of them from all, gives the active
// one to its blocks, and corrects each by a part of what these have changed; the coefficients come from a router. The
// first vector is the embedding, the others are products of it; after the layers, products of them are averaged.
// Source: Baykal et al., Alternating Updates for Efficient Transformers, arXiv 2301.13310, as in transformers'
// Gemma3nTextAltUp.
struct AltUpConfig {
  std::int64_t inputs = 0, active = 0;
  bool scales_corrected = false;  // the corrected active vector has learned factors where vectors by layer read it
  double coef_clip = 0.0;  // in training alone the learned coefficients are clipped to +-coef_clip; 0: they are not
};

// The function of the numbers that multiply attention's outputs before its last product. They are a product of the
// block's normed input. kNone: there are none.
enum class AttentionGate { kNone, kSigmoid, kSoftplus };

struct ModelConfig {
  std::string family;  // "llama", "qwen3", ...: for messages only; layers must not branch on it
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;  // also of layer norms (layer_norm_eps)
  NormKind norm_kind = NormKind::kRms;
  bool parallel_residual = false;  // attention and MLP read the same residual stream
  bool parallel_norms = false;     // attention and MLP have a norm each (GPT-NeoX); false: they share one (Cohere)
  bool norm_bias = false;          // layer norms add a bias
  bool weightless_norms = false;   // norms on inputs, and the last one, have no weights (OLMo)
  // Each of max_position_embeddings positions has a vector that is added to the embeddings (GPT-2).
  bool learned_positions = false;
  std::int64_t skipped_position_rows = 0;  // rows of a decoder's table before that of a text's first token (OPT)
  bool gated_mlp = true;                   // down(act(gate(x)) * up(x)); false: down(act(up(x)))
  // An MLP without a gate whose activation is xIELU, with two learned numbers a layer: a_p x^2 + x / 2 where x > 0,
  // else a_n (exp(x) - 1 - x) + x / 2 (Apertus). `activation` is not used.
  bool xielu = false;
  NormPlacement norm_placement = NormPlacement::kInput;
  Activation activation = Activation::kSilu;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;  // standard deviation of random initial weights
  // Initial weights of products onto the residual stream are divided by sqrt(2 layers) (GPT-2).
  bool narrow_residuals = false;
  bool qkv_bias = false;  // biases of q, k, v
  bool o_bias = false;
  bool mlp_bias = false;              // biases of gate, up, down
  bool qk_norm = false;               // RMS norm over head_dim on q and k before rope (Qwen3)
  bool qk_norm_of_all_heads = false;  // the same over all heads of q, and of k, together (OLMo 2)
  bool qk_norm_after_rope = false;    // the norms on q and k follow rope (HunYuan)
  // In layers with a rotary embedding, each head of q and k is divided by its root mean square after rope; there are no
  // weights (Llama 4).
  bool qk_l2_norm = false;
  bool qk_layer_norm = false;          // the norms on q and k are layer norms with biases (Persimmon)
  bool norm_weights_plus_one = false;  // norm weights w in the file mean 1 + w (Gemma)
  std::int64_t sliding_window = 0;     // 0: none. A query sees keys p with position - p < sliding_window
  std::vector<bool> layer_is_sliding;  // empty: all layers have the window when sliding_window > 0
  // The window begins at a multiple of sliding_window: a query sees the keys of its own chunk up to itself (Llama 4).
  bool chunked_windows = false;
  RopeConfig rope;
  // Rotary embedding of the layers with a window, if it differs from `rope` (Gemma 3).
  std::optional<RopeConfig> sliding_rope;
  std::int64_t rotary_dim = 0;               // rotated dimensions at the start of a head; 0: all of head_dim
  std::int64_t sliding_rotary_dim = 0;       // those of layers with a window, where they differ; 0: they do not
  std::vector<bool> layer_has_rope;          // empty: all
  double embedding_multiplier = 1.0;         // factor of the embeddings
  bool rounds_embedding_multiplier = false;  // the factor is rounded to the embeddings' dtype first (Gemma)
  double attention_multiplier = 0.0;         // factor of attention scores; 0: 1 / sqrt(head_dim)
  // If > 0: after rope, queries at position p are multiplied by 1 + beta ln(1 + floor((p + shift) / positions))
  // (Ministral 3), in some models only in layers without a rotary embedding (Llama 4).
  double query_scale_beta = 0.0;
  std::int64_t query_scale_positions = 0, query_scale_shift = 0;
  bool query_scale_without_rope = false;
  // If > 0: ALiBi. Scores of a head have a slope times the key's distance subtracted. With n heads, a power of two, the
  // slope of head h is 2^(-alibi_max (h + 1) / n). Source: Press et al., arXiv 2108.12409.
  double alibi_max = 0.0;
  // Slopes and their products with positions are rounded to bf16, and scaled like scores (Falcon).
  bool alibi_in_bf16 = false;
  bool embedding_norm = false;           // a norm like those of the layers follows the embeddings (BLOOM)
  double attn_logit_softcapping = 0.0;   // scores become cap * tanh(score / cap); 0: none
  double final_logit_softcapping = 0.0;  // the same for logits
  // q, k and v are clipped to +-clip_qkv before the rotary embedding; 0: no clipping (OLMoE).
  double clip_qkv = 0.0;
  double logit_scale = 1.0;     // factor of logits, before their softcap
  bool head_bias = false;       // the head adds a bias to logits (Phi)
  bool fused_qkv_proj = false;  // files hold q, k and v as one tensor, all rows of q first (Phi-3)
  // Files hold them as one tensor, in turn the query heads of a KV head, its keys and its values (GPT-NeoX, Falcon).
  bool fused_qkv_by_head = false;
  // Files hold them as one tensor of four blocks, each with the queries, values and keys of a quarter of the heads, in
  // this order (CodeGen).
  bool fused_qkv_by_quarter = false;
  // Files hold gate and up as one tensor, rows of gate first; in a mixture of experts those of the experts alone.
  bool fused_gate_up_proj = false;
  // A mixture of experts: in sparse layers a router chooses num_experts_per_tok of num_experts gated MLPs for each
  // token.
  std::int64_t num_experts = 0;  // 0: none
  std::int64_t num_experts_per_tok = 0;
  // MLP columns of an expert; intermediate_size: of the MLP in layers that are not sparse.
  std::int64_t moe_intermediate_size = 0;
  bool norm_topk_prob = false;        // the probabilities of the chosen experts are divided by their sum
  std::vector<bool> layer_is_sparse;  // empty: all layers, if the model has experts
  RouterConfig router{};
  // Experts of every token in addition to the chosen ones, with the weight 1, or the sigmoid of one more row of the
  // router. Files hold them as one MLP of their columns together.
  std::int64_t num_shared_experts = 0;
  std::int64_t shared_intermediate_size = 0;  // columns of each, where an expert has others; 0: as many
  bool shared_expert_gate = false;
  bool fused_shared_experts = false;  // files hold their gate and up as one tensor, rows of gate first (Granite)
  // Files hold a weight of all experts as one tensor, [experts, rows, columns] (GGUF); with fused_gate_up_proj also
  // gate and up as one, rows of gate first (Granite, transformers' own modules).
  bool stacked_experts = false;
  // Files hold gate and up of all experts as one tensor, [experts, inputs, 2 outputs], with columns of gate and up in
  // turn, and down as [experts, inputs, outputs] (gpt-oss).
  bool fused_experts = false;
  bool fused_experts_in_halves = false;  // with fused_experts: all columns of gate come before those of up (Llama 4)
  bool expert_bias = false;              // biases of the router and of experts' gate, up and down
  // If swiglu_limit > 0, experts compute gate * sigmoid(alpha * gate) * (up + 1), with gate clipped to at most the
  // limit and up to +-limit. 0: as `activation` says.
  double swiglu_alpha = 0, swiglu_limit = 0;
  // The key of config.json that asks for something in training which is not computed here; empty: none. Inference
  // ignores it.
  std::string untrained_key{};
  // The softmax over a row's scores includes one learned score per head, which has no value (gpt-oss).
  bool attention_sinks = false;
  bool sinks_in_windows = false;  // only the layers with a window have these scores (MiMo-V2)
  AttentionGate attention_gate = AttentionGate::kNone;
  bool gate_by_head = false;   // one number for all outputs of a head (Laguna)
  std::int64_t value_dim = 0;  // numbers of a head's values where they differ from head_dim; 0: they do not (MiMo-V2)
  double value_scale = 1.0;    // factor of the values
  // Files hold the rows of a head's gate behind those of its queries, in one tensor (Qwen3-Next).
  bool gate_beside_queries = false;
  std::optional<DeltaConfig> delta{};  // some layers have linear attention
  bool sparse_norm = false;            // the output of the experts has a norm, whatever norm_placement is (A.X K1)
  // Set for latent attention; num_key_value_heads is then num_attention_heads, and rotary_dim is rope_dim.
  std::optional<LatentConfig> latent{};
  // Sizes of the layers with full attention where they differ from those of the layers with a window; 0: they do not
  // (Gemma 4).
  std::int64_t full_head_dim = 0, full_kv_heads = 0;
  bool full_keys_are_values = false;  // in layers with full attention, values are the keys before norm and rotation
  bool v_norm = false;                // RMS norm without a weight over each head of v
  // The last layers have no keys and values of their own. They read those of the last earlier layer of their kind, with
  // a window or without.
  std::int64_t shared_kv_layers = 0;
  // By layer: its MLP has this number times intermediate_size columns; empty: one.
  std::vector<std::int64_t> mlp_widths{};
  bool layer_scalar = false;  // a layer's output is multiplied by a number of the file, which is not trained
  // If per_layer_width > 0: for each layer a token has a vector of this size, from its id (a table of per_layer_vocab
  // rows; later ids take row 0) and its embedding. The layer gates it and adds its product to the stream (Gemma 4).
  std::int64_t per_layer_width = 0, per_layer_vocab = 0;
  std::optional<AltUpConfig> altup{};  // Gemma 3n
  // If > 0: attention's normed input, and the norm of its product of this rank, are added to the stream in addition to
  // attention's output; the sum is divided by sqrt(2) (Laurel, Gemma 3n).
  std::int64_t laurel_rank = 0;
  // By layer: of a token's gates in the MLP only those above mean + c * standard deviation pass, less this limit, where
  // c cuts off this part of a normal distribution; 0: all pass unchanged. Empty: in all layers (Gemma 3n).
  std::vector<double> gate_sparsity{};
  // Ids from here on stand for images or sounds; 0: none do.
  std::int64_t first_other_id = 0;
  // Rows of the table of embeddings if there are more of them than outputs, vocab_size: those behind stand for images
  // and sounds (Apertus 1.5); 0: as many. They are read by a training alone.
  std::int64_t embedding_rows = 0;
  // Sparse layers also have a dense MLP. MLP and experts read the same stream through norms of their own, and their
  // normed outputs are added. A weight of an expert is multiplied by a learned number (Gemma 4).
  bool dense_beside_experts = false;
  std::int64_t bos_token_id = -1, eos_token_id = -1;
  // Names of the outputs of a classifier or reward model, in order; empty: a language model.
  std::vector<std::string> labels;
  // From config.json; a decoder's classification head reads the last token that differs from it.
  std::int64_t pad_token_id = -1;
  // Set for an encoder, which is always a classifier and reads the first token; empty: a decoder.
  std::optional<EncoderConfig> encoder;

  bool is_classifier() const { return !labels.empty(); }
  // Rows of the table of learned positions. A model may skip the first ones.
  std::int64_t position_rows() const {
    return max_position_embeddings + (encoder ? encoder->first_position : skipped_position_rows);
  }
  std::int64_t table_rows() const { return std::max(vocab_size, embedding_rows); }
  // Output rows of the head: the vocabulary, or the labels.
  std::int64_t head_outputs() const { return is_classifier() ? static_cast<std::int64_t>(labels.size()) : vocab_size; }

  bool slides(std::int64_t layer) const {
    return sliding_window > 0 && (layer_is_sliding.empty() || layer_is_sliding[static_cast<std::size_t>(layer)]);
  }
  // True for a layer with linear attention.
  bool is_linear(std::int64_t layer) const { return delta && delta->layer_has[static_cast<std::size_t>(layer)]; }
  // Sizes of this layer. With linear attention its heads are those of values, and its KV heads those of keys.
  std::int64_t heads_of(std::int64_t layer) const {
    return is_linear(layer) ? delta->value_heads : num_attention_heads;
  }
  std::int64_t head_dim_of(std::int64_t layer) const {
    if (is_linear(layer)) return delta->key_dim;
    return full_head_dim > 0 && !slides(layer) ? full_head_dim : head_dim;
  }
  std::int64_t kv_heads_of(std::int64_t layer) const {
    if (is_linear(layer)) return delta->key_heads;
    return full_kv_heads > 0 && !slides(layer) ? full_kv_heads : num_key_value_heads;
  }
  std::int64_t mlp_widths_of(std::int64_t layer) const {
    return mlp_widths.empty() ? 1 : mlp_widths[static_cast<std::size_t>(layer)];
  }
  double gate_sparsity_of(std::int64_t layer) const {
    return gate_sparsity.empty() ? 0.0 : gate_sparsity[static_cast<std::size_t>(layer)];
  }
  // False for a layer that reads the keys and values of kv_layer().
  bool has_own_kv(std::int64_t layer) const { return layer < num_hidden_layers - shared_kv_layers; }
  std::int64_t kv_layer(std::int64_t layer) const {
    std::int64_t from = layer;
    while (!has_own_kv(from) || slides(from) != slides(layer)) --from;
    return from;
  }
  // True for a layer that chooses the keys which it and the following layers see.
  bool chooses_keys(std::int64_t layer) const {
    if (!latent || !latent->indexer) return false;
    const std::vector<bool>& chooses = latent->indexer->layer_chooses;
    return chooses.empty() || chooses[static_cast<std::size_t>(layer)];
  }
  bool keys_are_values(std::int64_t layer) const { return full_keys_are_values && !slides(layer); }
  // True if layers differ in size, or if some read the keys and values of others.
  bool has_kinds_of_attention() const { return full_head_dim > 0 || full_kv_heads > 0 || shared_kv_layers > 0; }
  // True for a layer with experts instead of one MLP, or beside it.
  bool is_sparse(std::int64_t layer) const {
    return num_experts > 0 && (layer_is_sparse.empty() || layer_is_sparse[static_cast<std::size_t>(layer)]);
  }
  std::int64_t all_experts() const { return num_experts + num_shared_experts; }
  std::int64_t experts_a_token() const { return num_experts_per_tok + num_shared_experts; }
  // 0 in a layer without a rotary embedding.
  std::int64_t rotary_dim_of(std::int64_t layer) const {
    if (is_linear(layer)) return 0;
    const bool turns = layer_has_rope.empty() || layer_has_rope[static_cast<std::size_t>(layer)];
    if (turns && slides(layer) && sliding_rotary_dim > 0) return sliding_rotary_dim;
    return !turns ? 0 : rotary_dim > 0 ? rotary_dim : head_dim_of(layer);
  }
  // Numbers of a head's values in this layer.
  std::int64_t value_dim_of(std::int64_t layer) const {
    return is_linear(layer) ? delta->value_dim : value_dim > 0 ? value_dim : head_dim_of(layer);
  }
  bool has_sinks(std::int64_t layer) const { return attention_sinks && (!sinks_in_windows || slides(layer)); }
  std::int64_t expert_columns(std::int64_t expert) const {
    return expert >= num_experts && shared_intermediate_size > 0 ? shared_intermediate_size : moe_intermediate_size;
  }
  // Numbers of the gate of all heads' outputs, in a layer.
  std::int64_t gate_numbers(std::int64_t layer) const {
    if (is_linear(layer)) return delta->value_heads * delta->value_dim;
    return attention_gate == AttentionGate::kNone ? 0 : num_attention_heads * (gate_by_head ? 1 : value_dim_of(layer));
  }
  // Number of parameters, exact; biases, norms and an untied head are included.
  std::uint64_t num_parameters() const;
  // Parameters that one token uses: all but those of experts that it is not routed to. A token costs 2 FLOPs for each.
  // Attention's own products are not counted; at the lengths of chats they are a few percent.
  std::uint64_t parameters_a_token() const;
};

// The name of each weight in the model's file. Hugging Face and GGUF use different names. GGUF files of the llama
// family hold the rows of q and k in another rotary order, which WeightSource undoes.
struct TensorNames {
  std::string embed_tokens, norm, lm_head;  // lm_head: empty when tied; `score` in a classifier
  std::string embed_positions, norm_bias;   // empty: none
  std::string embed_norm, embed_norm_bias;  // empty: none
  // Only models with per_layer_width have these; empty: none.
  std::string per_layer_table, per_layer_projection, per_layer_norm;
  // AltUp: products that make the stream's vectors after the first, and those that join them again; empty: none.
  std::vector<std::string> altup_projections, altup_unembeddings;
  // Only encoders have these; empty: none.
  std::string embed_token_types, relative, relative_norm, relative_norm_bias;
  std::string pooler, pooler_bias, lm_head_bias;
  struct Layer {
    std::string attention_input_norm, attention_output_norm, mlp_input_norm, mlp_output_norm;  // empty: none
    std::string attention_input_norm_bias, mlp_input_norm_bias;                                // empty: none
    std::string attention_output_norm_bias, mlp_output_norm_bias;                              // empty: none
    std::string q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj;                 // weights
    std::string q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;                 // empty: none
    std::string xielu_alpha_p, xielu_alpha_n;                                                  // empty: none
    // Name of one of xIELU's fixed numbers, "beta" or "eps", which stand beside the learned ones; empty: none.
    std::string xielu_number(const char* number) const {
      const std::size_t place = xielu_alpha_p.rfind("alpha_p");
      return place == std::string::npos ? "" : xielu_alpha_p.substr(0, place) + number;
    }
    std::string q_norm, k_norm, sinks, q_norm_bias, k_norm_bias;  // empty: none
    // Latent attention: q_proj and k_proj make the short vectors (k_proj the latent and the rotated key), q_norm and
    // k_norm are their norms, and these make the heads. Empty: none.
    std::string q_up_proj, latent_up_proj;
    // The indexer of a layer that chooses keys. Empty: none.
    std::string index_q_proj, index_k_proj, index_k_norm, index_k_norm_bias, index_weights;
    std::string attention_gate;  // weight; empty: none
    // Linear attention: products of its strength and decay, the convolution's weights for queries, keys and values,
    // the logarithm of the decay's rate, what is added to the decay's product, and the norm. Empty: none.
    std::string delta_strength, delta_decay, delta_conv_q, delta_conv_k, delta_conv_v, delta_rate, delta_bias,
        delta_norm;
    std::string router, router_bias;                     // empty: no experts
    std::string router_choice_bias, shared_expert_gate;  // empty: none
    // Only sparse layers with dense_beside_experts have these; empty: none.
    std::string router_scale, expert_scales, dense_output_norm, experts_input_norm, experts_output_norm;
    std::string layer_scalar, per_layer_gate, per_layer_output, per_layer_output_norm;             // empty: none
    std::string altup_router, altup_router_norm, altup_prediction, altup_correction, altup_scale;  // empty: none
    std::string laurel_left, laurel_right, laurel_norm;                                            // empty: none
    struct Expert {
      std::string gate_proj, up_proj, down_proj;
      std::string gate_bias, up_bias, down_bias;  // empty: none
    };
    std::vector<Expert> experts;
  };
  std::vector<Layer> layers;
  // Tensors that the file may hold and that are not weights (rotary inv_freq, rope_freqs).
  std::vector<std::string> ignored;
  // Tensors of an image encoder beside the text decoder; `ignored` has them, too. A trained model's folder keeps them.
  std::vector<std::string> other_parts;
  // GGUF llama files and GLM-4: rows of q and k are stored as [head, E/2, 2] pairs instead of [head, 2, E/2] halves. If
  // rotary_dim is smaller than a head, this holds for the first rotary_dim rows of each head only.
  bool interleaved_rope_rows = false;
  bool transposed_products = false;  // weights of the layers' products are stored as [in, out] (GPT-2)
};

struct ModelDescription {
  ModelConfig config;
  TensorNames names;
  // model_type of the model of images and texts whose text decoder this is; empty: the model is a decoder alone.
  std::string outer_type{};
};

// The transformers class of the model's family with a classification head; empty: there is none.
std::string classifier_architecture(const ModelConfig& config);
// The same layers with a classification head, score.weight, as that class has with num_labels: the start of training a
// reward model from a language model. A model that has such a head already is returned unchanged. Throws Error(kConfig)
// where transformers has no such class.
ModelDescription with_reward_head(const ModelDescription& description, std::int64_t num_labels = 1);

// Reads and checks config and names of the model at `path` (a .gguf file or a folder) whose tensors are `file`. An
// unknown architecture, a missing or unused tensor and a shape that contradicts the config are refused by name
// (Error(kData)).
ModelDescription describe_model(const std::string& path, const TensorFile& file);
// The same from config.json alone, without a tensor file (magister plan --config-only).
ModelDescription describe_config(const std::string& config_json_path);

}  // namespace magister
