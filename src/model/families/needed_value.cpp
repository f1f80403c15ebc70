// Source: the classes of transformers that the families name.
#include "model/families/needed_value.h"

#include "magister/core/error.h"

namespace magister {

void need_flag(const HfConfig& source, const char* key, bool computed, bool absent) {
  MAGISTER_CHECK(source.boolean_or(key, absent) == computed, ExitCode::kData,
                 "{}: {} is {} (of this family only {} is supported, and results would be wrong); use another model",
                 printable(source.path()), key, !computed, computed);
}

void need_even_heads(const HfConfig& source, const ModelConfig& config) {
  MAGISTER_CHECK(config.head_dim * config.num_attention_heads == config.hidden_size, ExitCode::kData,
                 "{}: head_dim is {} (this family's is hidden_size / num_attention_heads = {} / {}); fetch the config "
                 "again",
                 printable(source.path()), config.head_dim, config.hidden_size, config.num_attention_heads);
}

}  // namespace magister
