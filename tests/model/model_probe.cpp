// Writes the results of describe_model, WeightSource and rope_table for a model, for oracle_test.py to compare with
// Python.
// usage: model_probe MODEL OUT_DIR x1 x3 @70 f32|bf16|f16: over 1 and over 3 shards, rotary rows of a sequence of 70;
//       model_probe --describe MODEL; model_probe --measure MODEL DTYPE. An Error is printed, its code is the exit
//       code.
#include <ATen/ATen.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../support/serve_cases.h"
#include "magister/core/error.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"
#include "magister/model/rope.h"
#include "magister/model/weights.h"

namespace magister {
namespace {

using nlohmann::json;

void write_f32(const std::filesystem::path& path, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const at::Tensor plain = tensor.to(at::kFloat).contiguous();
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(plain.const_data_ptr()), static_cast<std::streamsize>(plain.nbytes()));
}

json to_json(const ModelConfig& c) {
  return {{"family", c.family},
          {"vocab_size", c.vocab_size},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"num_key_value_heads", c.num_key_value_heads},
          {"head_dim", c.head_dim},
          {"max_position_embeddings", c.max_position_embeddings},
          {"rms_norm_eps", c.rms_norm_eps},
          {"tie_word_embeddings", c.tie_word_embeddings},
          {"qkv_bias", c.qkv_bias},
          {"o_bias", c.o_bias},
          {"mlp_bias", c.mlp_bias},
          {"qk_norm", c.qk_norm},
          {"sliding_window", c.sliding_window},
          {"layer_is_sliding", c.layer_is_sliding},
          {"num_parameters", c.num_parameters()},
          {"shards", json::array()}};
}

json range(IndexRange r) { return {r.begin, r.end}; }

// Read for their bytes, like experts.
void load_around_blocks(WeightSource& source, std::int64_t layer) {
  using Names = TensorNames::Layer;
  for (const auto name :
       {&Names::router_scale, &Names::expert_scales, &Names::dense_output_norm, &Names::experts_input_norm,
        &Names::experts_output_norm, &Names::layer_scalar, &Names::per_layer_output_norm, &Names::laurel_norm,
        &Names::altup_router, &Names::altup_router_norm, &Names::altup_prediction, &Names::altup_correction,
        &Names::altup_scale})
    source.load_layer_whole(layer, name);
  for (const auto name : {&Names::per_layer_gate, &Names::per_layer_output, &Names::laurel_left, &Names::laurel_right})
    source.load_layer_product(layer, name);
}

json dump_shard(const TensorFile& file, const ModelDescription& description, int rank, int size, at::ScalarType dtype,
                const std::filesystem::path& out) {
  const Partition part = partition_for(description.config, rank, size);
  WeightSource source(file, description, part, rank, dtype);
  const auto write = [&](const std::string& name, const at::Tensor& tensor) {
    write_f32(out / fmt::format("{}.{}.f32", rank, name), tensor);
  };
  const auto write_linear = [&](const std::string& name, const Linear& linear) {
    write(name, linear.weight_NK);
    write(name + ".bias", linear.bias_N);
  };
  const at::Tensor embeddings = source.load_embeddings();
  source.load_positions();
  source.load_embedding_norm();
  source.load_per_layer_table();
  source.load_per_layer_projection();
  source.load_per_layer_norm();
  for (const auto kind : {&TensorNames::altup_projections, &TensorNames::altup_unembeddings})
    source.load_matrices(kind);
  write("embed", embeddings);
  write("lm_head", source.load_lm_head(embeddings));
  source.load_lm_head_bias();
  write("norm", source.load_norm().input_D);
  for (std::int64_t i = 0; i < description.config.num_hidden_layers; ++i) {
    const std::string prefix = fmt::format("{}.", i);
    write(prefix + "input_layernorm", source.load_attention_norms(i).input_D);
    write(prefix + "post_attention_layernorm", source.load_mlp_norms(i).input_D);
    write(prefix + "q_norm", source.load_q_norm(i));
    write(prefix + "k_norm", source.load_k_norm(i));
    source.load_q_norm_bias(i);
    source.load_k_norm_bias(i);
    if (description.config.latent) {
      source.load_q_up_proj(i);
      source.load_latent_up_proj(i);
    }
    if (description.config.chooses_keys(i)) {
      source.load_index_q_proj(i);
      source.load_index_k_proj(i);
      source.load_index_k_norm(i);
      source.load_index_weights(i);
    }
    if (description.config.is_linear(i)) source.load_delta(i);
    source.load_sinks(i);
    load_around_blocks(source, i);
    write_linear(prefix + "qkv", source.load_qkv_proj(i));
    source.load_attention_gate(i);
    write_linear(prefix + "o", source.load_o_proj(i));
    if (description.config.is_sparse(i)) {  // read for their bytes; families_test.py compares what they compute
      source.load_router(i);
      source.load_choice_bias(i);
      for (std::int64_t expert = 0; expert < description.config.all_experts(); ++expert) {
        source.load_expert_gate_up_proj(i, expert);
        source.load_expert_down_proj(i, expert);
      }
      if (!description.config.dense_beside_experts) continue;
    }
    write_linear(prefix + "gate_up", source.load_gate_up_proj(i));
    write_linear(prefix + "down", source.load_down_proj(i));
    source.load_xielu(i);
  }
  source.verify_all_used();
  return {{"heads", range(part.heads)},
          {"kv_heads", range(part.kv_heads)},
          {"mlp", range(part.mlp)},
          {"vocab", range(part.vocab)},
          {"loaded_bytes", source.loaded_bytes()},
          {"weight_bytes", weight_bytes(description.config, dtype, rank, size)}};
}

// Loads everything as a run does and keeps it; prints weights and the growth of peak memory.
int measure_loading(const std::string& model, at::ScalarType dtype) {
  // Not getrusage: its maximum survives exec and would be that of the Python process that starts us.
  const auto peak_bytes = [] {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      std::uint64_t kilobytes = 0;
      if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
    }
    return std::uint64_t{0};
  };
  at::ones({512, 512}).mm(at::ones({512, 512}));  // libraries and their buffers are not part of the loading
  const std::uint64_t before = peak_bytes();
  const auto file = TensorFile::open(model);
  const ModelDescription description = describe_model(model, *file);
  WeightSource source(*file, description, partition_for(description.config, 0, 1), 0, dtype);
  std::vector<at::Tensor> kept = {source.load_embeddings(), source.load_norm().input_D};
  kept.push_back(source.load_lm_head(kept.front()));
  for (std::int64_t i = 0; i < description.config.num_hidden_layers; ++i) {
    for (const Linear& linear :
         {source.load_qkv_proj(i), source.load_o_proj(i), source.load_gate_up_proj(i), source.load_down_proj(i)}) {
      kept.push_back(linear.weight_NK);
    }
    kept.push_back(source.load_attention_norms(i).input_D);
    kept.push_back(source.load_mlp_norms(i).input_D);
    kept.push_back(source.load_q_norm(i));
    kept.push_back(source.load_k_norm(i));
  }
  source.verify_all_used();
  std::printf("{\"loaded_bytes\": %llu, \"peak_growth_bytes\": %llu}\n",
              static_cast<unsigned long long>(source.loaded_bytes()),
              static_cast<unsigned long long>(peak_bytes() - before));
  return 0;
}

int dump(const std::string& model, const std::filesystem::path& out, const std::vector<std::string>& arguments,
         at::ScalarType dtype) {
  const auto file = TensorFile::open(model);
  const ModelDescription description = describe_model(model, *file);
  for (const std::string& argument : arguments) {
    const std::int64_t number = std::stoll(argument.substr(1));
    if (argument[0] == '@') {
      const RopeTable table = rope_table(description.config, number, number);
      write_f32(out / fmt::format("cos.{}.f32", number), table.cos_PE2);
      write_f32(out / fmt::format("sin.{}.f32", number), table.sin_PE2);
      continue;
    }
    const std::filesystem::path folder = out / argument;
    std::filesystem::create_directories(folder);
    json config = to_json(description.config);
    for (int rank = 0; rank < number; ++rank) {
      config["shards"].push_back(dump_shard(*file, description, rank, static_cast<int>(number), dtype, folder));
    }
    std::ofstream(folder / "config.json") << config.dump();
  }
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "--describe") {
    describe_model(arguments[1], *TensorFile::open(arguments[1]));
    return 0;
  }
  if (arguments.size() < 3) return 64;
  const at::ScalarType dtype = arguments.back() == "bf16"  ? at::kBFloat16
                               : arguments.back() == "f16" ? at::kHalf
                                                           : at::kFloat;
  if (arguments[0] == "--measure") return measure_loading(arguments[1], dtype);
  return dump(arguments[0], arguments[1], {arguments.begin() + 2, arguments.end() - 1}, dtype);
}

}  // namespace
}  // namespace magister

int main(int argc, char** argv) {
  return magister::test::serve_cases(argc, argv, [](int count, char** texts) {
    try {
      return magister::run({texts + 1, texts + count});
    } catch (const magister::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return static_cast<int>(error.code());
    }
  });
}
