// See rope_length.h.
#include "magister/runtime/rope_length.h"

#include <fmt/format.h>

#include <algorithm>

#include "magister/model/rope.h"

namespace magister {

bool rope_has_length(const ModelConfig& config) {
  return config.rope.kind == RopeConfig::Kind::kDynamic || config.rope.kind == RopeConfig::Kind::kLongRope;
}

void fix_rope_length(ModelConfig& config, std::uint64_t length) {
  if (!rope_has_length(config) || length == 0) return;
  const std::int64_t first = positions_of_first_rope(config), tokens = static_cast<std::int64_t>(length);
  const bool lists = config.rope.kind == RopeConfig::Kind::kLongRope;
  // One number for each list, so that tasks of other lengths share their weights.
  config.rope.fixed_length = tokens <= first ? first
                             : lists         ? std::max(config.max_position_embeddings, first + 1)
                                             : tokens;
}

std::string describe_rope_length(const ModelConfig& config) {
  if (config.rope.fixed_length == 0) return "";
  const std::int64_t first = positions_of_first_rope(config);
  const bool is_long = config.rope.fixed_length > first;
  if (config.rope.kind == RopeConfig::Kind::kLongRope)
    return fmt::format(
        "every text has the {} list of rotary factors (the model has one up to {} tokens and one beyond)",
        is_long ? "long" : "short", first);
  return fmt::format(
      "every text has the rotary frequencies of a text of {} tokens (beyond {} they depend on the length)",
      config.rope.fixed_length, first);
}

}  // namespace magister
