// A new text takes two steps: its tokens, then the candidates of all texts. From the second token on the first step has
// no tokens.
#include "engine/value_guide.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"

namespace magister {
namespace {

constexpr std::int64_t kPageTokens = KvPages::kSlots;

std::int64_t guide_pages(std::int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

std::int64_t checked_pages(const GuideSetup& setup, const ModelConfig& reference) {
  MAGISTER_ASSERT(setup.value_model != nullptr);
  const ModelConfig& value = setup.value_model->config();
  const GuideParams& params = setup.params;
  MAGISTER_CHECK(value.is_classifier() && !value.encoder, ExitCode::kConfig,
                 "the guide's value model is {} (it must be a decoder with a head of labels); name a reward model",
                 value.encoder ? "an encoder" : "a language model");
  const bool fits = (params.form == GuideForm::kHistogram) == (value.labels.size() > 1);
  MAGISTER_CHECK(fits, ExitCode::kConfig,
                 "the guide's value model gives {} numbers (form histogram reads two or more, the others one); choose "
                 "another form or model",
                 value.labels.size());
  const std::int64_t common = std::min(value.vocab_size, reference.vocab_size);
  MAGISTER_CHECK(params.candidates >= 1 && params.candidates <= common, ExitCode::kConfig,
                 "the guide has {} candidates (the vocabulary has {} entries); choose 1 to {}", params.candidates,
                 common, common);
  MAGISTER_CHECK(std::isfinite(params.multiplier) && params.multiplier >= 0, ExitCode::kConfig,
                 "the guide's multiplier is {} (it must be a number, 0 or more); choose one", params.multiplier);
  MAGISTER_ASSERT(!setup.value_model->config().delta);  // states cannot be copied; the task has refused it
  return setup.num_pages;
}

}  // namespace

ValueGuide::ValueGuide(const GuideSetup& setup, const ModelConfig& reference, std::int64_t token_budget)
    : model_(*setup.value_model),
      params_(setup.params),
      token_budget_(std::max(token_budget, setup.params.candidates)),
      pool_(checked_pages(setup, reference)),
      memory_(model_, [] { return fail_point("guide.pass.memory"); }),
      cache_(model_.make_cache(setup.num_pages)) {}

void ValueGuide::check_fits(std::uint64_t record, std::int64_t length) const {
  const std::int64_t needed = guide_pages(length) + params_.candidates;
  MAGISTER_CHECK(
      needed <= pool_.num_pages(), ExitCode::kData,
      "record {}: a prompt and its text of {} tokens need {} pages of the value model's {} with {} candidates "
      "(they would never fit); give the cache more memory or ask for fewer tokens or candidates",
      record, length, needed, pool_.num_pages(), params_.candidates);
}

void ValueGuide::free_pages(Held& held) {
  for (const std::int32_t page : held.pages) pool_.free(page);
  for (const std::int32_t page : held.candidates) pool_.free(page);
  held = {};
}

void ValueGuide::release(const Sequence& sequence) {
  const auto found = held_.find(key_of(sequence));
  if (found == held_.end()) return;
  free_pages(found->second);
  held_.erase(found);
}

// Frees the pages of the last text that is not being asked; that text is computed again when it is asked.
bool ValueGuide::give_up_another(std::span<const Asked> asked, const Asked& next) {
  for (auto other = held_.rbegin(); other != held_.rend(); ++other) {
    const Key key = other->first;
    const bool needed = key == key_of(*next.sequence) || std::any_of(asked.begin(), asked.end(), [&](const Asked& one) {
                          return key == key_of(*one.sequence);
                        });
    if (needed || other->second.pages.empty()) continue;
    free_pages(other->second);
    return true;
  }
  return false;
}

void ValueGuide::find_shared_pages(Held& held, std::span<const TokenId> tokens) {
  while (held.computed % kPageTokens == 0 && held.computed + kPageTokens <= static_cast<std::int64_t>(tokens.size())) {
    const auto found =
        pool_.find_cached(held.prefix, tokens.subspan(static_cast<std::size_t>(held.computed), kPageTokens));
    if (!found) return;
    held.pages.push_back(found->page);
    held.prefix = found->prefix;
    held.computed += kPageTokens;
    ++held.prefix_pages;
  }
}

// Pages that this pass fills can be shared at once, because within a layer all keys are written before any is read.
void ValueGuide::share_full_pages(Held& held, std::span<const TokenId> tokens) {
  for (; (held.prefix_pages + 1) * kPageTokens <= static_cast<std::int64_t>(tokens.size()); ++held.prefix_pages) {
    const auto first = static_cast<std::size_t>(held.prefix_pages * kPageTokens);
    held.prefix = pool_.cache(held.pages[static_cast<std::size_t>(held.prefix_pages)], held.prefix,
                              tokens.subspan(first, kPageTokens));
  }
}

// Reserves pages for the text of `next` and its candidates, in addition to those of `asked`; false if there are none.
bool ValueGuide::reserve(std::span<const Asked> asked, const Asked& next) {
  Held& held = held_[key_of(*next.sequence)];
  const std::span<const TokenId> tokens(next.sequence->tokens);
  if (held.pages.empty()) find_shared_pages(held, tokens);
  const auto wanted = guide_pages(next.sequence->num_tokens()), there = static_cast<std::int64_t>(held.pages.size());
  const std::int64_t needed = wanted - there + static_cast<std::int64_t>(next.tokens.size());
  while (needed > pool_.num_available()) {
    if (!give_up_another(asked, next)) return false;
  }
  for (std::int64_t i = there; i < wanted; ++i) held.pages.push_back(*pool_.allocate());
  share_full_pages(held, tokens);
  for (std::size_t i = 0; i < next.tokens.size(); ++i) held.candidates.push_back(*pool_.allocate());
  return true;
}

std::size_t ValueGuide::rescore(std::span<Asked> asked) {
  std::int64_t rows = 0;
  std::size_t count = 0;
  for (; count < asked.size(); ++count) {
    rows += static_cast<std::int64_t>(asked[count].tokens.size());
    if (count > 0 && rows > token_budget_) break;
    if (!reserve(asked.first(count), asked[count])) break;
  }
  MAGISTER_ASSERT(count > 0);  // ensured by check_fits()
  compute_texts(asked.first(count));
  compute_candidates(asked.first(count));
  return count;
}

// Computes the missing tokens in pieces that fill the budget: all tokens of a new or displaced text; none if the text
// only got the kept candidate.
void ValueGuide::compute_texts(std::span<const Asked> asked) {
  std::vector<Piece> pieces;
  std::int64_t budget = token_budget_;
  for (const Asked& one : asked) {
    Held& held = held_.at(key_of(*one.sequence));
    const std::span<const TokenId> all(one.sequence->tokens);
    for (auto first = static_cast<std::size_t>(held.computed); first < all.size();) {
      const std::size_t count = std::min(all.size() - first, static_cast<std::size_t>(budget));
      pieces.push_back({&held, all.subspan(first, count)});
      first += count;
      budget -= static_cast<std::int64_t>(count);
      if (budget > 0) continue;
      compute(pieces);
      pieces.clear();
      budget = token_budget_;
    }
  }
  compute(pieces);
}

void ValueGuide::compute(const std::vector<Piece>& pieces) {
  if (pieces.empty()) return;
  std::vector<Input> inputs;
  inputs.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    inputs.push_back({{piece.tokens.begin(), piece.tokens.end()}, piece.held->computed, {piece.held->pages.data(), 0}});
    piece.held->computed += static_cast<std::int64_t>(piece.tokens.size());
    computed_tokens_ += piece.tokens.size();
  }
  pass(inputs, Read::kNone);
}

namespace {

// Splits between two texts, or inside the only one. The second half may read pages that the first one fills, never the
// other way round.
template <typename Input>
std::pair<std::vector<Input>, std::vector<Input>> halves_of(const std::vector<Input>& inputs) {
  if (inputs.size() > 1) {
    const auto middle = inputs.begin() + static_cast<std::ptrdiff_t>(inputs.size() / 2);
    return {{inputs.begin(), middle}, {middle, inputs.end()}};
  }
  Input first = inputs.front(), second = first;
  const auto half = static_cast<std::ptrdiff_t>(first.tokens.size() / 2);
  first.tokens.erase(first.tokens.begin() + half, first.tokens.end());
  second.tokens.erase(second.tokens.begin(), second.tokens.begin() + half);
  second.past += half;
  return {{std::move(first)}, {std::move(second)}};
}

}  // namespace

at::Tensor ValueGuide::pass(const std::vector<Input>& inputs, Read read) {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::int64_t> past;
  std::vector<BlockTable> slots;
  PassMemory::Size size;  // rows of logits are small, so none are counted
  for (const Input& input : inputs) {
    const auto count = static_cast<std::int64_t>(input.tokens.size());
    size.tokens += count;
    size.sequence_tokens = std::max(size.sequence_tokens, input.past + count);
    tokens.push_back(input.tokens);
    past.push_back(input.past);
    slots.push_back(input.slots);
  }
  PackedBatch batch = pack_sequences(tokens, std::move(past));
  if (read == Read::kNone) batch.read_rows.emplace();
  at::Tensor hidden_TD;
  const auto begin = std::chrono::steady_clock::now();
  const std::string problem = memory_.run(size, [&] { hidden_TD = model_.forward(batch, slots, cache_); });
  pass_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (problem.empty()) return hidden_TD;
  MAGISTER_CHECK(size.tokens > 1, ExitCode::kConfig,
                 "no memory on the GPU for a value model's pass of one token: {} (there is no smaller one); lower "
                 "token_budget or max_sequences, or use larger groups",
                 problem);
  const auto [first, second] = halves_of(inputs);
  const at::Tensor first_TD = pass(first, read);
  return at::cat({first_TD, pass(second, read)}, 0);
}

// One layer per thread: on a single thread this took a tenth of a step of 32 texts with 20 candidates.
void ValueGuide::copy_pages(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) {
  if (model_.queue() != nullptr) return cache_.copy_pages(from, to);
  model_.pool().run(static_cast<std::int64_t>(cache_.layers.size()), [&](std::int64_t layer, int) {
    KvPages& pages = cache_.layers[static_cast<std::size_t>(layer)];
    for (std::size_t i = 0; i < from.size(); ++i) pages.copy_page(from[i], to[i]);
  });
}

void ValueGuide::compute_candidates(std::span<Asked> asked) {
  std::vector<Input> inputs;
  std::vector<std::vector<std::int32_t>> tables;
  std::vector<std::int64_t> copy_from, copy_to;
  for (const Asked& one : asked) {
    const Held& held = held_.at(key_of(*one.sequence));
    const bool inside = held.computed % kPageTokens != 0;  // each candidate continues in a copy of the last page
    for (std::size_t i = 0; i < one.tokens.size(); ++i) {
      inputs.push_back({{one.tokens[i].id}, held.computed, {}});
      std::vector<std::int32_t>& table = tables.emplace_back(held.pages);
      if (inside) {
        copy_from.push_back(table.back());
        copy_to.push_back(held.candidates[i]);
        table.pop_back();
      }
      table.push_back(held.candidates[i]);
    }
  }
  copy_pages(copy_from, copy_to);
  for (std::size_t i = 0; i < tables.size(); ++i) inputs[i].slots = {tables[i].data(), 0};
  computed_tokens_ += inputs.size();
  const at::Tensor values_RL = model_.logits(pass(inputs, Read::kAll)).to(at::kFloat).cpu().contiguous();
  const auto L = static_cast<std::size_t>(values_RL.size(1));
  const float* row = values_RL.const_data_ptr<float>();
  for (Asked& one : asked) {
    for (GuidedToken& token : one.tokens) {
      token.offset = guide_offset(params_, {row, L});
      MAGISTER_CHECK(
          std::isfinite(token.offset), ExitCode::kData,
          "record {}, text {}: the value model's number for token {} after {} is not finite (no token can be "
          "chosen by it); check its weights",
          one.sequence->request.record, one.sequence->request.sample, token.id, one.sequence->num_tokens());
      row += L;
    }
  }
}

void ValueGuide::keep(const Asked& asked) {
  Held& held = held_.at(key_of(*asked.sequence));
  const auto chosen = std::find_if(asked.tokens.begin(), asked.tokens.end(),
                                   [&](const GuidedToken& token) { return token.id == asked.sequence->tokens.back(); });
  MAGISTER_ASSERT(chosen != asked.tokens.end());
  const auto place = static_cast<std::size_t>(chosen - asked.tokens.begin());
  if (held.computed % kPageTokens != 0) {
    pool_.free(held.pages.back());
    held.pages.pop_back();
  }
  held.pages.push_back(held.candidates[place]);
  for (std::size_t i = 0; i < held.candidates.size(); ++i)
    if (i != place) pool_.free(held.candidates[i]);
  held.candidates.clear();
  ++held.computed;
}

}  // namespace magister
