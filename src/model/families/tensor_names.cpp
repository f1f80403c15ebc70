// Names of a model's tensors in Hugging Face files and in GGUF files, the shapes that the config gives them, and the
// check of a file against both. Every family here has Llama's layout; what a family lacks has an empty name.
// Sources: transformers' Llama, Mistral, Qwen2, Qwen3 modules; ggml GGUF specification, standard tensor names.
#include <set>

#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace {

// The spelling of one layer's tensors below its prefix.
struct Spelling {
  const char *input_layernorm, *post_attention_layernorm;
  const char *q, *k, *v, *o, *gate, *up, *down, *q_norm, *k_norm;
};
constexpr Spelling kHf = {"input_layernorm",  "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
                          "self_attn.v_proj", "self_attn.o_proj",         "mlp.gate_proj",    "mlp.up_proj",
                          "mlp.down_proj",    "self_attn.q_norm",         "self_attn.k_norm"};
constexpr Spelling kGguf = {"attn_norm", "ffn_norm", "attn_q",   "attn_k",      "attn_v",     "attn_output",
                            "ffn_gate",  "ffn_up",   "ffn_down", "attn_q_norm", "attn_k_norm"};

TensorNames::Layer layer_names(const ModelConfig& config, const std::string& prefix, const Spelling& spelling) {
  const auto weight = [&](const char* name) { return prefix + name + ".weight"; };
  const auto bias = [&](bool present, const char* name) { return present ? prefix + name + ".bias" : std::string(); };
  TensorNames::Layer layer;
  layer.input_layernorm = weight(spelling.input_layernorm);
  layer.post_attention_layernorm = weight(spelling.post_attention_layernorm);
  layer.q_proj = weight(spelling.q);
  layer.k_proj = weight(spelling.k);
  layer.v_proj = weight(spelling.v);
  layer.o_proj = weight(spelling.o);
  layer.gate_proj = weight(spelling.gate);
  layer.up_proj = weight(spelling.up);
  layer.down_proj = weight(spelling.down);
  layer.q_bias = bias(config.qkv_bias, spelling.q);
  layer.k_bias = bias(config.qkv_bias, spelling.k);
  layer.v_bias = bias(config.qkv_bias, spelling.v);
  layer.o_bias = bias(config.o_bias, spelling.o);
  layer.gate_bias = bias(config.mlp_bias, spelling.gate);
  layer.up_bias = bias(config.mlp_bias, spelling.up);
  layer.down_bias = bias(config.mlp_bias, spelling.down);
  if (config.qk_norm) {
    layer.q_norm = weight(spelling.q_norm);
    layer.k_norm = weight(spelling.k_norm);
  }
  return layer;
}

}  // namespace

TensorNames hf_tensor_names(const ModelConfig& config) {
  TensorNames names;
  names.embed_tokens = "model.embed_tokens.weight";
  names.norm = "model.norm.weight";
  if (!config.tie_word_embeddings) names.lm_head = "lm_head.weight";
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    names.layers.push_back(layer_names(config, prefix, kHf));
    names.ignored.push_back(prefix + "self_attn.rotary_emb.inv_freq");  // old files keep this buffer
  }
  return names;
}

TensorNames gguf_tensor_names(const ModelConfig& config, bool interleaved) {
  TensorNames names;
  names.embed_tokens = "token_embd.weight";
  names.norm = "output_norm.weight";
  if (!config.tie_word_embeddings) names.lm_head = "output.weight";
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    names.layers.push_back(layer_names(config, fmt::format("blk.{}.", i), kGguf));
  }
  names.ignored = {"rope_freqs.weight"};  // read with the config
  names.interleaved_rope_rows = interleaved;
  return names;
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config, const TensorNames& names) {
  const std::int64_t D = config.hidden_size, F = config.intermediate_size, V = config.vocab_size, E = config.head_dim;
  const std::int64_t Q = config.num_attention_heads * E, K = config.num_key_value_heads * E;
  std::vector<ExpectedTensor> all;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    if (!name.empty()) all.push_back({name, std::move(shape)});
  };
  add(names.embed_tokens, {V, D});
  add(names.lm_head, {V, D});
  add(names.norm, {D});
  for (const TensorNames::Layer& layer : names.layers) {
    add(layer.input_layernorm, {D});
    add(layer.post_attention_layernorm, {D});
    add(layer.q_proj, {Q, D});
    add(layer.k_proj, {K, D});
    add(layer.v_proj, {K, D});
    add(layer.o_proj, {D, Q});
    add(layer.gate_proj, {F, D});
    add(layer.up_proj, {F, D});
    add(layer.down_proj, {D, F});
    add(layer.q_bias, {Q});
    add(layer.k_bias, {K});
    add(layer.v_bias, {K});
    add(layer.o_bias, {D});
    add(layer.gate_bias, {F});
    add(layer.up_bias, {F});
    add(layer.down_bias, {D});
    add(layer.q_norm, {E});
    add(layer.k_norm, {E});
  }
  return all;
}

void check_tensors(const ModelDescription& description, const TensorFile& file, const std::string& path) {
  static const std::set<StorageType> kNoWeights = {StorageType::kI8,     StorageType::kI16, StorageType::kI32,
                                                   StorageType::kI64,    StorageType::kU8,  StorageType::kBool,
                                                   StorageType::kF8_E4M3};
  std::set<std::string> known(description.names.ignored.begin(), description.names.ignored.end());
  for (const ExpectedTensor& expected : expected_tensors(description.config, description.names)) {
    known.insert(expected.name);
    const TensorInfo* info = file.find(expected.name);
    MAGISTER_CHECK(info != nullptr, ExitCode::kData,
                   "{}: tensor {} is missing (the config asks for it, [{}]); fetch the model again", printable(path),
                   expected.name, fmt::join(expected.shape, ", "));
    MAGISTER_CHECK(
        info->shape == expected.shape, ExitCode::kData,
        "{}: tensor {} is [{}], the config asks for [{}] (they belong to different models); fetch the model again",
        printable(path), expected.name, fmt::join(info->shape, ", "), fmt::join(expected.shape, ", "));
    MAGISTER_CHECK(
        !kNoWeights.contains(info->type), ExitCode::kData,
        "{}: tensor {} is stored as {} (a weight is a real number; quantised checkpoints of this kind are not "
        "supported); use the unquantised model",
        printable(path), expected.name, to_string(info->type));
  }
  for (const TensorInfo& info : file.tensors()) {
    MAGISTER_CHECK(known.contains(info.name), ExitCode::kData,
                   "{}: tensor {} [{}] is not used in a {} model (results without it would be wrong); use another "
                   "model",
                   printable(path), printable(info.name), fmt::join(info.shape, ", "), description.config.family);
  }
}

}  // namespace magister
