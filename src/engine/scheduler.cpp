// If no page is free, the sequence that was admitted last gives back all of its pages and starts again later. Its text
// is then the same, because draws are keyed by position.
#include "engine/scheduler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::int64_t kSlots = KvPages::kSlots;

std::int64_t pages_for(std::int64_t tokens) { return (tokens + kSlots - 1) / kSlots; }

}  // namespace

Scheduler::Scheduler(const GeneratorLimits& limits, bool separates_prefill)
    : limits_(limits), separates_prefill_(separates_prefill), pool_(limits.num_pages) {
  for (std::int64_t place = limits.max_sequences; place > 0; --place) places_.push_back(place - 1);
}

void Scheduler::add(GenerationRequest request, std::uint64_t count) {
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  MAGISTER_CHECK(
      pages_for(length + request.max_new_tokens) <= pool_.num_pages(), ExitCode::kData,
      "record {}: a prompt of {} tokens and {} new ones need {} pages of the cache's {} (they would never fit); "
      "give the cache more memory or ask for fewer tokens",
      request.record, length, request.max_new_tokens, pages_for(length + request.max_new_tokens), pool_.num_pages());
  const bool shares = count > 1 && limits_.share_prefixes;
  const std::shared_ptr<SharedPrompt> prompt = shares ? std::make_shared<SharedPrompt>() : nullptr;
  if (shares) prompt->waiting = count;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto sequence = std::make_unique<Sequence>();
    sequence->tokens = request.prompt;
    if (request.constraint != nullptr) sequence->constraint.emplace(*request.constraint);
    sequence->request = request;
    sequence->request.sample += i;
    sequence->request.greedy = request.greedy && i == 0;
    sequence->prompt = prompt;
    waiting_.push_back(std::move(sequence));
  }
}

std::unique_ptr<Sequence> Scheduler::take_out(std::uint64_t record, std::uint64_t sample) {
  const auto is_it = [&](const SequencePtr& one) {
    return one->request.record == record && one->request.sample == sample;
  };
  SequencePtr taken;
  if (const auto waits = std::find_if(waiting_.begin(), waiting_.end(), is_it); waits != waiting_.end()) {
    taken = std::move(*waits);
    waiting_.erase(waits);
  } else if (const auto runs = std::find_if(running_.begin(), running_.end(), is_it); runs != running_.end()) {
    taken = std::move(*runs);
    running_.erase(runs);
    release(*taken);
  }
  if (taken && taken->prompt && --taken->prompt->waiting == 0) drop(*taken->prompt);
  return taken;
}

// Takes over full pages of the same beginning that others have computed. The last token is always computed, because its
// row is needed.
void Scheduler::find_shared_pages(Sequence& sequence) {
  if (!limits_.share_prefixes) return;
  const std::span<const TokenId> tokens(sequence.tokens);
  const std::int64_t most = separates_prefill_ ? sequence.num_prompt_tokens() : sequence.num_tokens();
  while (sequence.computed + kSlots < most) {
    const auto found =
        pool_.find_cached(sequence.prefix, tokens.subspan(static_cast<std::size_t>(sequence.computed), kSlots));
    if (!found) return;
    sequence.pages.push_back(found->page);
    sequence.prefix = found->prefix;
    sequence.computed += kSlots;
    ++sequence.prefix_pages;
  }
}

// Gives the sequence the prompt's pages; the last one is copied unless it is full. Returns false if there is no page
// for it.
bool Scheduler::begin_on(SharedPrompt& prompt, Sequence& sequence) {
  const std::int64_t length = sequence.num_tokens(), full = length / kSlots;
  if (pages_for(length + 1) - full > pool_.num_available()) return false;
  for (std::int64_t i = 0; i < full; ++i) {
    pool_.share(prompt.pages[static_cast<std::size_t>(i)]);
    sequence.pages.push_back(prompt.pages[static_cast<std::size_t>(i)]);
  }
  if (full * kSlots < length) {
    sequence.pages.push_back(*pool_.allocate());
    pass_.copy_from.push_back(prompt.pages.back());
    pass_.copy_to.push_back(sequence.pages.back());
  }
  sequence.prefix = prompt.prefix;
  sequence.prefix_pages = prompt.prefix_pages;
  sequence.computed = sequence.cached = length;
  cached_tokens_ += static_cast<std::uint64_t>(length);
  return true;
}

void Scheduler::keep_prompt(Sequence& sequence, const at::Tensor& logits_1V) {
  SharedPrompt& prompt = *sequence.prompt;
  sequence.leads = false;
  if (prompt.waiting == 0) {
    prompt.state = SharedPrompt::State::kNone;
  } else {
    prompt.state = SharedPrompt::State::kComputed;
    prompt.pages = sequence.pages;
    for (const std::int32_t page : prompt.pages) pool_.share(page);
    prompt.prefix = sequence.prefix;
    prompt.prefix_pages = sequence.prefix_pages;
    prompt.logits_1V = logits_1V.clone();  // drawing changes a row in place
    prompts_.push_back(sequence.prompt);
  }
  sequence.prompt.reset();
}

at::Tensor Scheduler::take_prompt_row(Sequence& sequence) {
  SharedPrompt& prompt = *sequence.prompt;
  const at::Tensor logits_1V = prompt.logits_1V;
  if (--prompt.waiting == 0) drop(prompt);
  sequence.prompt.reset();
  return logits_1V;
}

void Scheduler::drop(SharedPrompt& prompt) {
  for (const std::int32_t page : prompt.pages) pool_.free(page);
  prompt.pages.clear();
  prompt.logits_1V = at::Tensor();
  prompt.state = SharedPrompt::State::kNone;
  std::erase_if(prompts_, [&](const std::shared_ptr<SharedPrompt>& one) { return one.get() == &prompt; });
}

// If pages run out, prompts that wait for texts to begin are dropped first; the next of these texts computes its prompt
// again. Nothing is dropped if this pass copies from such pages.
bool Scheduler::drop_prompts() {
  if (prompts_.empty() || !pass_.copy_from.empty()) return false;
  while (!prompts_.empty()) drop(*std::shared_ptr<SharedPrompt>(prompts_.back()));
  return true;
}

// Takes the sequence into this pass with as many tokens as the budget allows; false if there is no page for them.
bool Scheduler::take_pages(Sequence& sequence, std::int64_t& budget) {
  const std::int64_t prompt = sequence.num_prompt_tokens();
  std::int64_t count = std::min(sequence.num_tokens() - sequence.computed, budget);
  // A text that lost its pages is computed again as it was written: first the prompt, then token by token.
  if (separates_prefill_) count = sequence.computed < prompt ? std::min(count, prompt - sequence.computed) : 1;
  while (static_cast<std::int64_t>(sequence.pages.size()) < pages_for(sequence.computed + count)) {
    const auto page = pool_.allocate();
    if (!page) return false;
    sequence.pages.push_back(*page);
  }
  sequence.scheduled = count;
  budget -= count;
  // Pages that this pass fills can be shared at once, because within a layer all keys are written before any is read.
  const std::span<const TokenId> tokens(sequence.tokens);
  const std::int64_t shareable =
      separates_prefill_ ? std::min(sequence.computed + count, prompt) : sequence.computed + count;
  while (limits_.share_prefixes && (sequence.prefix_pages + 1) * kSlots <= shareable) {
    const auto first = static_cast<std::size_t>(sequence.prefix_pages * kSlots);
    sequence.prefix = pool_.cache(sequence.pages[static_cast<std::size_t>(sequence.prefix_pages)], sequence.prefix,
                                  tokens.subspan(first, kSlots));
    ++sequence.prefix_pages;
  }
  return true;
}

void Scheduler::release(Sequence& sequence) {
  if (sequence.leads) {  // before the end of the prompt: another text, or this one later, computes it
    sequence.leads = false;
    sequence.prompt->state = SharedPrompt::State::kNone;
    ++sequence.prompt->waiting;
  }
  for (const std::int32_t page : sequence.pages) pool_.free(page);
  sequence.pages.clear();
  if (sequence.place >= 0) places_.push_back(std::exchange(sequence.place, -1));
  sequence.computed = sequence.scheduled = sequence.prefix_pages = 0;
  sequence.prefix = 0;
}

void Scheduler::preempt_last() {
  SequencePtr last = std::move(running_.back());
  running_.pop_back();
  release(*last);
  ++preemptions_;
  waiting_.push_front(std::move(last));
}

void Scheduler::schedule_running(std::int64_t& budget) {
  const auto decodes = [](const Sequence& s) { return s.num_tokens() - s.computed == 1; };
  for (const bool decoding : {true, false}) {
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      Sequence& sequence = *running_[i];
      if (sequence.scheduled > 0 || decodes(sequence) != decoding) continue;
      while (!take_pages(sequence, budget)) {
        if (drop_prompts()) continue;
        MAGISTER_ASSERT(running_.size() > 1);
        // Only a sequence that is not in this pass may be preempted, because the pass uses its pages.
        if (running_.back()->scheduled > 0 || running_.back().get() == &sequence) break;
        preempt_last();
      }
      if (sequence.scheduled > 0) pass_.computed.push_back(&sequence);
    }
  }
}

Scheduler::Pass Scheduler::schedule() {
  std::int64_t budget = std::max(limits_.token_budget, limits_.max_sequences);
  schedule_running(budget);
  // Skips texts whose prompt is being computed by another one.
  for (std::size_t i = 0;
       i < waiting_.size() && budget > 0 && static_cast<std::int64_t>(running_.size()) < limits_.max_sequences;) {
    Sequence& sequence = *waiting_[i];
    if (sequence.prompt && sequence.prompt->state == SharedPrompt::State::kScheduled) {
      ++i;
      continue;
    }
    if (!admit(sequence, budget)) break;
    sequence.place = places_.back();
    places_.pop_back();
    running_.push_back(std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return std::exchange(pass_, {});
}

// Returns false if there are not enough pages.
bool Scheduler::admit(Sequence& sequence, std::int64_t& budget) {
  if (sequence.prompt && sequence.prompt->state == SharedPrompt::State::kComputed) {
    if (begin_on(*sequence.prompt, sequence)) {
      pass_.begun.push_back(&sequence);
      return true;
    }
    // If nothing else runs, no sequence would ever give a page back.
    if (!running_.empty() || !drop_prompts()) return false;
  }
  find_shared_pages(sequence);
  const std::int64_t needed = pages_for(sequence.num_tokens() + 1) - static_cast<std::int64_t>(sequence.pages.size());
  // Requires pages for the whole prompt and one token: otherwise the sequence would stop half way and be preempted.
  if ((needed > pool_.num_available() && (!running_.empty() || !drop_prompts())) || !take_pages(sequence, budget)) {
    release(sequence);
    return false;
  }
  if (sequence.prompt) {
    sequence.leads = true;
    --sequence.prompt->waiting;
    sequence.prompt->state = SharedPrompt::State::kScheduled;
  }
  if (sequence.logprobs.empty()) {
    sequence.cached = sequence.computed;
    cached_tokens_ += static_cast<std::uint64_t>(sequence.computed);
  }
  pass_.computed.push_back(&sequence);
  return true;
}

std::vector<Sequence*> Scheduler::schedule_ahead(const std::vector<Sequence*>& drawing, bool takes_in) {
  if (!separates_prefill_ || drawing.size() != running_.size()) return {};
  std::vector<Sequence*> next;
  std::int64_t needed = 0;
  for (Sequence* sequence : drawing) {
    if (sequence->num_tokens() + 1 - sequence->num_prompt_tokens() >= sequence->request.max_new_tokens) continue;
    needed += std::max<std::int64_t>(
        pages_for(sequence->computed + 1) - static_cast<std::int64_t>(sequence->pages.size()), 0);
    next.push_back(sequence);
  }
  if (needed > pool_.num_available()) return {};
  if (takes_in && !waiting_.empty() && static_cast<std::int64_t>(next.size()) < limits_.max_sequences) return {};
  for (Sequence* sequence : next) {
    MAGISTER_ASSERT(sequence->computed == sequence->num_tokens() && sequence->scheduled == 0);
    while (static_cast<std::int64_t>(sequence->pages.size()) < pages_for(sequence->computed + 1))
      sequence->pages.push_back(*pool_.allocate());
    sequence->scheduled = 1;
  }
  return next;
}

void Scheduler::advance_ahead(const std::vector<Sequence*>& sequences) {
  for (Sequence* sequence : sequences) {
    if (sequence != nullptr) sequence->computed += std::exchange(sequence->scheduled, 0);
  }
}

std::vector<Sequence*> Scheduler::advance(const Pass& pass) {
  std::vector<Sequence*> whole;
  for (Sequence* sequence : pass.computed) {
    sequence->computed += std::exchange(sequence->scheduled, 0);
    if (sequence->computed == sequence->num_tokens()) whole.push_back(sequence);
  }
  return whole;
}

void Scheduler::remove_finished() {
  std::erase_if(running_, [](const SequencePtr& sequence) { return sequence->pages.empty(); });
}

}  // namespace magister
