// Reads of the experts' numbers. check_config() checks the rules between them.
#include "model/families/expert_fields.h"

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::int64_t kMostColumns = 1 << 22;

}  // namespace

void read_experts(const HfConfig& source, ModelConfig& config, const char* columns_key, std::int64_t absent_experts,
                  std::int64_t absent_per_token) {
  source.refuse_two("num_local_experts", "num_experts");
  // Two names of one number; published configs have one of the two.
  const char* key = source.has("num_local_experts") ? "num_local_experts" : "num_experts";
  config.num_experts = source.integer_or(key, absent_experts, 1, kMostExperts);
  config.num_experts_per_tok = source.integer_or("num_experts_per_tok", absent_per_token, 1, kMostExperts);
  config.moe_intermediate_size = source.integer(columns_key, 1, kMostColumns);
  if (source.boolean_or("output_router_logits", false)) config.untrained_key = "output_router_logits";
}

void read_shared_experts(ModelConfig& config, std::int64_t columns) {
  const bool divides = columns % config.moe_intermediate_size == 0;
  config.num_shared_experts = divides ? columns / config.moe_intermediate_size : 1;
  config.shared_intermediate_size = divides ? 0 : columns;
}

std::vector<bool> sparse_layers(const HfConfig& source, std::int64_t dense, std::int64_t num_layers) {
  std::vector<bool> out;
  for (std::int64_t i = 0; i < num_layers; ++i) out.push_back(i >= dense);
  if (!source.has("mlp_layer_types")) return out;
  out.clear();
  for (const std::string& type : source.texts("mlp_layer_types")) {
    MAGISTER_CHECK(type == "dense" || type == "sparse", ExitCode::kData,
                   "{}: mlp_layer_types has \"{}\" (known: dense, sparse); use another model", printable(source.path()),
                   printable(type));
    out.push_back(type == "sparse");
  }
  MAGISTER_CHECK(static_cast<std::int64_t>(out.size()) == num_layers, ExitCode::kData,
                 "{}: mlp_layer_types has {} entries for {} layers; fetch the config again", printable(source.path()),
                 out.size(), num_layers);
  return out;
}

std::vector<bool> stepped_sparse_layers(const HfConfig& source, std::int64_t num_layers) {
  const std::int64_t step = source.integer_or("decoder_sparse_step", 1, 1, 1 << 12);
  std::vector<bool> out;
  for (std::int64_t i = 0; i < num_layers; ++i) out.push_back((i + 1) % step == 0);
  for (const std::int64_t layer : source.integers("mlp_only_layers", 0, num_layers - 1))
    out[static_cast<std::size_t>(layer)] = false;
  return out;
}

void check_dense_layers(const HfConfig& source, const ModelConfig& config) {
  if (!source.has("first_k_dense_replace")) return;
  const std::int64_t dense = source.integer("first_k_dense_replace", 0, config.num_hidden_layers);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    MAGISTER_CHECK(config.is_sparse(i) == (i >= dense), ExitCode::kData,
                   "{}: first_k_dense_replace is {}, but by mlp_layer_types, or by its default, layer {} has {} (which "
                   "layers have experts is unknown); fetch the config again",
                   printable(source.path()), dense, i, config.is_sparse(i) ? "experts" : "none");
  }
}

void read_sigmoid_router(const HfConfig& source, ModelConfig& config, bool has_shared) {
  config.num_experts = source.integer("n_routed_experts", 1, kMostExperts);
  config.num_experts_per_tok = source.integer("num_experts_per_tok", 1, kMostExperts);
  config.moe_intermediate_size = source.integer("moe_intermediate_size", 1, 1 << 22);
  if (has_shared) config.num_shared_experts = source.integer("n_shared_experts", 1, kMostExperts);
  config.router.scores = RouterConfig::Scores::kSigmoid;
  config.router.choice_bias = true;
  config.router.groups = source.integer_or("n_group", 1, 1, kMostExperts);
  config.router.chosen_groups = source.integer_or("topk_group", 1, 1, kMostExperts);
  config.router.scaling = source.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6);
  config.router.least_sum = 1e-20;
  const std::int64_t dense = source.integer_or("first_k_dense_replace", 0, 0, config.num_hidden_layers);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) config.layer_is_sparse.push_back(i >= dense);
  if (source.boolean_or("output_router_logits", false)) config.untrained_key = "output_router_logits";
}

void read_experts(const GgufConfig& source, ModelConfig& config, const char* columns_key) {
  config.num_experts = source.integer("expert_count", 1, kMostExperts);
  config.num_experts_per_tok = source.integer("expert_used_count", 1, kMostExperts);
  config.moe_intermediate_size = source.integer(columns_key, 1, kMostColumns);
  config.stacked_experts = true;
}

}  // namespace magister
