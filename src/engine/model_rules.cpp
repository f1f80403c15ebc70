// Bans become a mask, which is combined with the mask of a constraint. If rules both force and ban, the order of
// transformers decides: forcing comes first.
#include "magister/engine/model_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "magister/engine/logits_processor.h"

namespace magister {
namespace {

using Words = std::vector<std::uint64_t>;

void bar(Words& words, TokenId id) {
  const auto i = static_cast<std::size_t>(id);
  if (i / 64 < words.size()) words[i / 64] &= ~(std::uint64_t{1} << (i % 64));
}

bool ends_with(std::span<const TokenId> history, std::span<const TokenId> prefix) {
  return prefix.size() <= history.size() &&
         std::equal(prefix.begin(), prefix.end(), history.end() - static_cast<std::ptrdiff_t>(prefix.size()));
}

std::span<const TokenId> all_but_last(const std::vector<TokenId>& ids) { return std::span(ids).first(ids.size() - 1); }

// Bans every token that has already followed the last n - 1 tokens.
void bar_repeated(Words& words, std::span<const TokenId> history, std::size_t n) {
  if (history.size() < n) return;
  const std::span<const TokenId> newest = history.last(n - 1);
  for (std::size_t i = 0; i + n <= history.size(); ++i) {
    if (std::equal(newest.begin(), newest.end(), history.begin() + static_cast<std::ptrdiff_t>(i)))
      bar(words, history[i + n - 1]);
  }
}

std::size_t num_written(const DecodingState& state) { return state.history.size() - state.num_prompt; }

bool is_too_short(const ModelRules& rules, std::size_t length, std::size_t written) {
  if (rules.end_tokens.empty()) return false;
  return rules.min_new_tokens > 0 ? written < static_cast<std::size_t>(rules.min_new_tokens)
                                  : length < static_cast<std::size_t>(rules.min_length);
}

// Transformers keeps a forced first token after a prompt of one token, and counts from the token after it.
std::size_t first_written(const ModelRules& rules, const DecodingState& state) {
  return rules.forced_first && state.num_prompt <= 1 ? 1 : 0;
}

bool leaves_any(const Words& words) {
  return std::any_of(words.begin(), words.end(), [](std::uint64_t word) { return word != 0; });
}

}  // namespace

bool ModelRules::empty() const {
  return sequence_bias.empty() && bad_words.empty() && no_repeat_ngram_size == 0 && min_length == 0 &&
         min_new_tokens == 0 && !forced_first && forced_last.empty() && suppressed.empty() && suppressed_first.empty();
}

std::string ModelRules::canonical_text() const {
  std::string line;
  for (const auto& [ids, bias] : sequence_bias) line += fmt::format("bias {} of {}; ", bias, fmt::join(ids, " "));
  for (const auto& ids : bad_words) line += fmt::format("never {}; ", fmt::join(ids, " "));
  return line + fmt::format("no repeated {}; at least {} or {} new before {}; first {}; last {}; not {}; not first {}",
                            no_repeat_ngram_size, min_length, min_new_tokens, fmt::join(end_tokens, " "),
                            forced_first.value_or(-1), fmt::join(forced_last, " "), fmt::join(suppressed, " "),
                            fmt::join(suppressed_first, " "));
}

bool rules_apply(const ModelRules& rules, const DecodingState& state, std::size_t unknown) {
  const std::size_t length = state.history.size() + unknown, written = num_written(state) + unknown;
  return !rules.sequence_bias.empty() || !rules.bad_words.empty() || rules.no_repeat_ngram_size > 0 ||
         !rules.suppressed.empty() || is_too_short(rules, length, written) || (rules.forced_first && length == 1) ||
         (!rules.forced_last.empty() && length + 1 == state.max_length) ||
         (!rules.suppressed_first.empty() && written == first_written(rules, state));
}

std::span<const TokenId> forced_by_rules(const ModelRules& rules, const DecodingState& state) {
  if (!rules.forced_last.empty() && state.history.size() + 1 == state.max_length) return rules.forced_last;
  if (rules.forced_first && state.history.size() == 1) return {&*rules.forced_first, 1};
  return {};
}

std::vector<std::uint64_t> tokens_by_rules(const ModelRules& rules, const DecodingState& state,
                                           std::int64_t vocab_size) {
  const Words before(state.allowed.begin(), state.allowed.end());
  if (!rules_apply(rules, state)) return before;
  Words words = before;
  if (words.empty()) {
    words.assign(static_cast<std::size_t>((vocab_size + 63) / 64), ~std::uint64_t{0});
    if (vocab_size % 64 != 0) words.back() = (std::uint64_t{1} << (vocab_size % 64)) - 1;
  }
  const std::span<const TokenId> forced = forced_by_rules(rules, state);
  if (forced.empty()) {
    if (rules.no_repeat_ngram_size > 0)
      bar_repeated(words, state.history, static_cast<std::size_t>(rules.no_repeat_ngram_size));
    for (const std::vector<TokenId>& ids : rules.bad_words) {
      if (ends_with(state.history, all_but_last(ids))) bar(words, ids.back());
    }
    if (is_too_short(rules, state.history.size(), num_written(state))) {
      for (const TokenId id : rules.end_tokens) bar(words, id);
    }
  } else {
    Words only(words.size());
    for (const TokenId id : forced) only[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] &= only[i];
  }
  for (const TokenId id : rules.suppressed) bar(words, id);
  if (num_written(state) == first_written(rules, state)) {
    for (const TokenId id : rules.suppressed_first) bar(words, id);
  }
  return leaves_any(words) ? words : before;
}

std::vector<std::pair<TokenId, float>> biases_by_rules(const ModelRules& rules, std::span<const TokenId> history) {
  std::map<TokenId, float> biases;
  for (const auto& [ids, bias] : rules.sequence_bias) {
    if (ends_with(history, all_but_last(ids))) biases[ids.back()] += bias;
  }
  return {biases.begin(), biases.end()};
}

}  // namespace magister
