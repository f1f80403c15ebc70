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

void read_shared_experts(const HfConfig& source, ModelConfig& config, std::int64_t columns) {
  MAGISTER_CHECK(columns % config.moe_intermediate_size == 0, ExitCode::kData,
                 "{}: the shared experts have {} columns (only a multiple of an expert's {} is supported); use another "
                 "model",
                 printable(source.path()), columns, config.moe_intermediate_size);
  config.num_shared_experts = columns / config.moe_intermediate_size;
}

void read_sigmoid_router(const HfConfig& source, ModelConfig& config) {
  config.num_experts = source.integer("n_routed_experts", 1, kMostExperts);
  config.num_experts_per_tok = source.integer("num_experts_per_tok", 1, kMostExperts);
  config.moe_intermediate_size = source.integer("moe_intermediate_size", 1, 1 << 22);
  const std::int64_t shared = source.integer("n_shared_experts", 1, kMostExperts);
  read_shared_experts(source, config, shared * config.moe_intermediate_size);
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

std::vector<bool> sparse_layers(const HfConfig& source) {
  std::vector<bool> sparse;
  for (const std::string& type : source.texts("mlp_layer_types")) {
    MAGISTER_CHECK(type == "dense" || type == "sparse", ExitCode::kData,
                   "{}: mlp_layer_types has \"{}\" (known: dense, sparse); use another model", printable(source.path()),
                   printable(type));
    sparse.push_back(type == "sparse");
  }
  return sparse;
}

void read_experts(const GgufConfig& source, ModelConfig& config, const char* columns_key) {
  config.num_experts = source.integer("expert_count", 1, kMostExperts);
  config.num_experts_per_tok = source.integer("expert_used_count", 1, kMostExperts);
  config.moe_intermediate_size = source.integer(columns_key, 1, kMostColumns);
  config.stacked_experts = true;
}

}  // namespace magister
