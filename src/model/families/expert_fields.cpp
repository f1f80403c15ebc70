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

void read_experts(const GgufConfig& source, ModelConfig& config, const char* columns_key) {
  config.num_experts = source.integer("expert_count", 1, kMostExperts);
  config.num_experts_per_tok = source.integer("expert_used_count", 1, kMostExperts);
  config.moe_intermediate_size = source.integer(columns_key, 1, kMostColumns);
  config.stacked_experts = true;
}

}  // namespace magister
