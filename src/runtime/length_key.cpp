// See length_key.h.
#include "magister/runtime/length_key.h"

#include <fmt/format.h>

#include <algorithm>

#include "magister/model/rope.h"

namespace magister {

Positions positions_of(const ModelConfig& model) {
  const RopeConfig& rope = model.rope;
  const bool dynamic = rope.kind == RopeConfig::Kind::kDynamic;
  const double factor = dynamic ? std::max(rope.factor, 1.0) : 1.0;
  const auto made_for = static_cast<std::uint64_t>(
      static_cast<double>(std::max<std::int64_t>(model.max_position_embeddings, 0)) * factor);
  if (rope.fixed_length == 0 || (!dynamic && rope.kind != RopeConfig::Kind::kLongRope)) return {made_for, made_for};
  const std::int64_t first = positions_of_first_rope(model);
  const bool is_long = rope.fixed_length > first;
  const auto fixed = static_cast<std::uint64_t>(is_long ? rope.fixed_length : first);
  const std::uint64_t positions = is_long && !dynamic ? made_for : fewer(made_for, fixed);
  return {positions, positions};
}

std::uint64_t fewer(std::uint64_t one, std::uint64_t other) {
  return one == 0 || other == 0 ? one + other : std::min(one, other);
}

LengthKey::LengthKey(ConfigNode& node, const std::string& key, std::uint64_t usual, std::int64_t least,
                     std::int64_t most)
    : key_(key), usual_(usual), tokens_(usual) {
  const std::optional<std::int64_t> written = node.integer_or_auto(key, least, most);
  is_written_ = written.has_value();
  if (written) tokens_ = static_cast<std::uint64_t>(*written);
  node_ = node;
}

void LengthKey::ask(std::uint64_t tokens) {
  if (is_written_) return;
  usual_ = tokens_ = tokens;
  is_asked_ = true;
}

void LengthKey::become(std::uint64_t tokens) {
  if (is_written_) return;
  tokens_ = tokens;
  if (node_) node_->resolve_as(key_, static_cast<std::int64_t>(tokens));
}

void fit_length(LengthKey& length, std::uint64_t positions, Notes& notes) {
  if (length.is_written()) return;
  length.become(fewer(length.usual(), positions));
  if (length.tokens() == length.usual()) return;
  notes.emplace_back(length.key(), fmt::format("{}, all positions that there are (auto; {} where a model has more)",
                                               length.tokens(), length.usual()));
}

void fit_lengths(LengthKey& prompt, LengthKey& text, std::uint64_t positions, Notes& notes) {
  if (text.usual() == 0 && !text.is_written()) return fit_length(prompt, positions, notes);  // nothing is generated
  const bool unlimited = positions == 0;
  // The positions that one length leaves for the other; 0: a written value does not fit, and a later check refuses it.
  const auto left = [&](const LengthKey& other) { return positions > other.tokens() ? positions - other.tokens() : 0; };
  if (!text.is_written()) {
    const std::uint64_t most = prompt.is_written()                ? left(prompt)
                               : text.is_asked() && positions > 1 ? positions - 1
                                                                  : positions / 2;
    text.become(unlimited || most == 0 ? text.usual() : std::min(text.usual(), most));
  }
  if (!prompt.is_written())
    prompt.become(unlimited || left(text) == 0 ? prompt.usual() : std::min(prompt.usual(), left(text)));
  for (const auto& [length, other] : {std::pair(&prompt, &text), std::pair(&text, &prompt)}) {
    if (length->is_written() || length->tokens() == length->usual()) continue;
    notes.emplace_back(length->key(),
                       fmt::format("{}, with {} {} in {} positions (auto; {} where a model has more)", length->tokens(),
                                   other->key(), other->tokens(), positions, length->usual()));
  }
}

}  // namespace magister
