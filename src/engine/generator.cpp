// The scheduler: decode rows first, then prompts in pieces, then new sequences, as far as the budget and the pages go.
// Without a free page the sequence that was admitted last gives all of its pages back and starts again later; its text is
// the same then, since draws are keyed by position.
#include "magister/engine/generator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/gpu_sampler.h"
#include "magister/core/error.h"
#include "magister/device/upload.h"

namespace magister {
namespace {

constexpr std::int64_t kSlots = KvPages::kSlots;

std::int64_t pages_for(std::int64_t tokens) { return (tokens + kSlots - 1) / kSlots; }

}  // namespace

Generator::Generator(Transformer& model, const GeneratorLimits& limits, const SamplingParams& sampling,
                     std::uint64_t seed, Stop stop)
    : model_(model),
      limits_(limits),
      sampling_(sampling),
      seed_(seed),
      stop_(std::move(stop)),
      cache_(model.make_cache(limits.num_pages)),
      pool_(limits.num_pages) {
  MAGISTER_CHECK(
      limits.num_pages >= 2 && limits.max_sequences >= 1 && limits.token_budget >= 1, ExitCode::kConfig,
      "the generator has {} pages, {} sequences and {} tokens per pass (nothing could be written); give it more",
      limits.num_pages, limits.max_sequences, limits.token_budget);
  MAGISTER_CHECK(limits.top_logprobs >= 0 && limits.top_logprobs <= model.config().vocab_size, ExitCode::kConfig,
                 "top_logprobs is {} (the vocabulary has {} entries); lower it", limits.top_logprobs,
                 model.config().vocab_size);
  for (const auto& [id, bias] : sampling.logit_bias) {
    MAGISTER_CHECK(id >= 0 && id < model.config().vocab_size, ExitCode::kConfig,
                   "logit_bias names token {} (the vocabulary has {} entries); name one of them", id,
                   model.config().vocab_size);
  }
}

void Generator::add(GenerationRequest request, std::uint64_t count) {
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  MAGISTER_CHECK(length > 0, ExitCode::kData,
                 "record {}: the prompt has no token (nothing can follow it); give it text", request.record);
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
    sequence->prompt = prompt;
    waiting_.push_back(std::move(sequence));
  }
}

// Full pages of the same beginning that others have computed; the last token is always computed, its row is asked for.
void Generator::find_shared_pages(Sequence& sequence) {
  if (!limits_.share_prefixes) return;
  const std::span<const TokenId> tokens(sequence.tokens);
  const std::int64_t most = separates_prefill() ? static_cast<std::int64_t>(sequence.request.prompt.size())
                                                : static_cast<std::int64_t>(tokens.size());
  while (sequence.computed + kSlots < most) {
    const auto found = pool_.find(sequence.prefix, tokens.subspan(static_cast<std::size_t>(sequence.computed), kSlots));
    if (!found) return;
    sequence.pages.push_back(found->page);
    sequence.prefix = found->prefix;
    sequence.computed += kSlots;
    ++sequence.prefix_pages;
  }
}

// The sequence has the prompt's pages, the last one as a copy unless it is full; false when there is no page for it.
bool Generator::begin_on(SharedPrompt& prompt, Sequence& sequence) {
  const auto length = static_cast<std::int64_t>(sequence.tokens.size()), full = length / kSlots;
  if (pages_for(length + 1) - full > pool_.num_available()) return false;
  for (std::int64_t i = 0; i < full; ++i) {
    pool_.share(prompt.pages[static_cast<std::size_t>(i)]);
    sequence.pages.push_back(prompt.pages[static_cast<std::size_t>(i)]);
  }
  if (full * kSlots < length) {
    sequence.pages.push_back(*pool_.take());
    copy_from_.push_back(prompt.pages.back());
    copy_to_.push_back(sequence.pages.back());
  }
  sequence.prefix = prompt.prefix;
  sequence.prefix_pages = prompt.prefix_pages;
  sequence.computed = sequence.cached = length;
  counts_.cached_tokens += static_cast<std::uint64_t>(length);
  return true;
}

// The prompt was computed to its end: its pages and last row stay for the texts that have not begun.
void Generator::keep_prompt(Sequence& sequence, const at::Tensor& logits_1V) {
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
    prompt.logits_1V = logits_1V.clone();  // drawing changes a row where it stands
    prompts_.push_back(sequence.prompt);
  }
  sequence.prompt.reset();
}

void Generator::drop(SharedPrompt& prompt) {
  for (const std::int32_t page : prompt.pages) pool_.release(page);
  prompt.pages.clear();
  prompt.logits_1V = at::Tensor();
  prompt.state = SharedPrompt::State::kNone;
  std::erase_if(prompts_, [&](const std::shared_ptr<SharedPrompt>& one) { return one.get() == &prompt; });
}

// Where pages run out those that wait for texts to begin go first: the next of these texts computes the prompt again. Not those that
// this pass will copy from.
bool Generator::drop_prompts() {
  if (prompts_.empty() || !copy_from_.empty()) return false;
  while (!prompts_.empty()) drop(*std::shared_ptr<SharedPrompt>(prompts_.back()));
  return true;
}

void Generator::copy_last_pages() {
  cache_.copy_pages(copy_from_, copy_to_);
  copy_from_.clear();
  copy_to_.clear();
}

// Takes the sequence into this pass with as many tokens as the budget has; false when there is no page for them.
bool Generator::schedule(Sequence& sequence, std::int64_t& budget) {
  const auto prompt = static_cast<std::int64_t>(sequence.request.prompt.size());
  const std::int64_t left = static_cast<std::int64_t>(sequence.tokens.size()) - sequence.computed;
  std::int64_t count = std::min(left, budget);
  // A text that lost its pages is computed again as it was written: the prompt, then token by token.
  if (separates_prefill()) count = sequence.computed < prompt ? std::min(count, prompt - sequence.computed) : 1;
  while (static_cast<std::int64_t>(sequence.pages.size()) < pages_for(sequence.computed + count)) {
    const auto page = pool_.take();
    if (!page) return false;
    sequence.pages.push_back(*page);
  }
  sequence.scheduled = count;
  budget -= count;
  // Pages that this pass fills can be shared at once: within a layer all keys are written before any is read.
  const std::span<const TokenId> tokens(sequence.tokens);
  const std::int64_t shareable =
      separates_prefill() ? std::min(sequence.computed + count, prompt) : sequence.computed + count;
  while (limits_.share_prefixes && (sequence.prefix_pages + 1) * kSlots <= shareable) {
    const auto first = static_cast<std::size_t>(sequence.prefix_pages * kSlots);
    sequence.prefix = pool_.remember(sequence.pages[static_cast<std::size_t>(sequence.prefix_pages)], sequence.prefix,
                                     tokens.subspan(first, kSlots));
    ++sequence.prefix_pages;
  }
  return true;
}

void Generator::release(Sequence& sequence) {
  if (sequence.leads) {  // before the prompt's end: another text, or this one again, computes it
    sequence.leads = false;
    sequence.prompt->state = SharedPrompt::State::kNone;
    ++sequence.prompt->waiting;
  }
  for (const std::int32_t page : sequence.pages) pool_.release(page);
  sequence.pages.clear();
  sequence.computed = sequence.scheduled = sequence.prefix_pages = 0;
  sequence.prefix = 0;
}

void Generator::preempt_last() {
  SequencePtr last = std::move(running_.back());
  running_.pop_back();
  release(*last);
  ++counts_.preemptions;
  waiting_.push_front(std::move(last));
}

std::vector<Generator::Sequence*> Generator::schedule_pass() {
  std::int64_t budget = std::max(limits_.token_budget, limits_.max_sequences);
  std::vector<Sequence*> pass;
  const auto writes = [](const Sequence& s) { return static_cast<std::int64_t>(s.tokens.size()) - s.computed == 1; };
  for (const bool decoding : {true, false}) {
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      Sequence& sequence = *running_[i];
      if (sequence.scheduled > 0 || writes(sequence) != decoding) continue;
      while (!schedule(sequence, budget)) {
        if (drop_prompts()) continue;
        MAGISTER_ASSERT(running_.size() > 1);
        // Whoever goes has not been scheduled yet, or its pages would be taken from under this pass.
        if (running_.back()->scheduled > 0 || running_.back().get() == &sequence) break;
        preempt_last();
      }
      if (sequence.scheduled > 0) pass.push_back(&sequence);
    }
  }
  // Texts whose prompt another one computes are passed by.
  for (std::size_t i = 0;
       i < waiting_.size() && budget > 0 && static_cast<std::int64_t>(running_.size()) < limits_.max_sequences;) {
    Sequence& sequence = *waiting_[i];
    if (sequence.prompt && sequence.prompt->state == SharedPrompt::State::kUnderWay) {
      ++i;
      continue;
    }
    if (!admit(sequence, budget, pass)) break;
    running_.push_back(std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return pass;
}

// False when there are not enough pages.
bool Generator::admit(Sequence& sequence, std::int64_t& budget, std::vector<Sequence*>& pass) {
  if (sequence.prompt && sequence.prompt->state == SharedPrompt::State::kComputed) {
    if (begin_on(*sequence.prompt, sequence)) {
      begun_.push_back(&sequence);
      return true;
    }
    // With nothing else at work nobody would give a page back.
    if (!running_.empty() || !drop_prompts()) return false;
  }
  find_shared_pages(sequence);
  const std::int64_t needed = pages_for(static_cast<std::int64_t>(sequence.tokens.size()) + 1) -
                              static_cast<std::int64_t>(sequence.pages.size());
  // A whole prompt and one token, or it would stop half way and be thrown out again.
  if ((needed > pool_.num_available() && (!running_.empty() || !drop_prompts())) || !schedule(sequence, budget)) {
    release(sequence);
    return false;
  }
  if (sequence.prompt) {
    sequence.leads = true;
    --sequence.prompt->waiting;
    sequence.prompt->state = SharedPrompt::State::kUnderWay;
  }
  if (sequence.logprobs.empty()) {
    sequence.cached = sequence.computed;
    counts_.cached_tokens += static_cast<std::uint64_t>(sequence.computed);
  }
  pass.push_back(&sequence);
  return true;
}

// Hidden states of the rows that are asked for: the last of each sequence that is computed to its end, in order.
at::Tensor Generator::forward(const std::vector<Sequence*>& pass) {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::int64_t> past, rows;
  std::vector<BlockTable> slots;
  std::vector<std::uint8_t> writes;
  std::int64_t row = 0;
  for (const Sequence* sequence : pass) {
    const auto begin = sequence->tokens.begin() + sequence->computed;
    tokens.emplace_back(begin, begin + sequence->scheduled);
    past.push_back(sequence->computed);
    slots.push_back({sequence->pages.data(), 0});
    writes.push_back(sequence->computed >= static_cast<std::int64_t>(sequence->request.prompt.size()));
    row += sequence->scheduled;
    const bool whole = sequence->computed + sequence->scheduled == static_cast<std::int64_t>(sequence->tokens.size());
    if (whole) rows.push_back(row - 1);
  }
  counts_.computed_tokens += static_cast<std::uint64_t>(row);
  PackedBatch batch = pack_sequences(tokens, std::move(past));
  batch.is_decode_S = std::move(writes);
  const at::Tensor hidden_TD = model_.forward(batch, slots, cache_);
  return hidden_TD.index_select(0, gpu::upload(at::tensor(rows, at::kLong), hidden_TD.device()));
}

at::Tensor gather_logits(const at::Tensor& part_Rv, ProcessGroup& group) {
  if (group.tp_size() == 1) return part_Rv;
  at::Tensor width = at::tensor({part_Rv.size(1)}, at::kLong).to(part_Rv.device());
  const at::Tensor widths = group.all_gather(width);
  const std::int64_t widest = widths.max().item<std::int64_t>(), rows = part_Rv.size(0);
  const at::Tensor all_NRw = group.all_gather(at::constant_pad_nd(part_Rv, {0, widest - part_Rv.size(1)}).contiguous())
                                 .view({group.tp_size(), rows, widest});
  std::vector<at::Tensor> parts;
  for (std::int64_t shard = 0; shard < group.tp_size(); ++shard) {
    parts.push_back(all_NRw[shard].narrow(1, 0, widths[shard].item<std::int64_t>()));
  }
  return at::cat(parts, 1).contiguous();
}

DrawKey Generator::key_of(const Sequence& sequence) const {
  const GenerationRequest& request = sequence.request;
  return {seed_, request.record, request.sample,
          static_cast<std::uint64_t>(sequence.tokens.size() - request.prompt.size())};
}

// A row's way never depends on the other rows. What changes or keeps logits happens on the host.
bool Generator::draws_on_device(const Sequence& sequence) const {
  return separates_prefill() && sequence.request.max_new_tokens > 0 && !sequence.constraint &&
         limits_.top_logprobs == 0 && sampling_.repetition_penalty == 1.0 && sampling_.logit_bias.empty();
}

// Row i of the logits is that of sequence i. on_host: keeps the logits that come to the host.
std::vector<Generator::Row> Generator::rows_of(const std::vector<Sequence*>& sequences, const at::Tensor& logits_RV,
                                               at::Tensor& on_host) const {
  std::vector<Row> rows(sequences.size());
  std::vector<std::int64_t> drawn, copied;
  std::vector<double> uniforms;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const bool draws = draws_on_device(*sequences[i]);
    (draws ? drawn : copied).push_back(static_cast<std::int64_t>(i));
    if (draws) uniforms.push_back(keyed_uniform(key_of(*sequences[i])));
  }
  const auto selected = [&](const std::vector<std::int64_t>& of) {
    return of.size() == sequences.size()
               ? logits_RV
               : logits_RV.index_select(0, gpu::upload(at::tensor(of, at::kLong), logits_RV.device()));
  };
  if (!drawn.empty()) {
    const std::vector<SampledToken> tokens =
        sample_rows_on_gpu(selected(drawn), uniforms, sampling_, *model_.lm_head().gpu);
    for (std::size_t i = 0; i < drawn.size(); ++i) rows[static_cast<std::size_t>(drawn[i])].drawn = tokens[i];
  }
  if (!copied.empty()) {
    on_host = selected(copied).cpu();
    const std::int64_t V = on_host.size(1);
    for (std::size_t i = 0; i < copied.size(); ++i) {
      rows[static_cast<std::size_t>(copied[i])].logits_V = {
          on_host.data_ptr<float>() + static_cast<std::int64_t>(i) * V, static_cast<std::size_t>(V)};
    }
  }
  return rows;
}

// The sequence's next token, appended with what is kept of its row.
void Generator::sample(Sequence& sequence, const Row& row) {
  const GenerationRequest& request = sequence.request;
  const std::span<float> logits_V = row.logits_V;
  if (limits_.top_logprobs > 0) {
    append_most_probable(logits_V, limits_.top_logprobs, sequence.top_ids, sequence.top_logprobs);
  }
  std::span<const std::uint64_t> allowed;
  if (sequence.constraint) {
    allowed = sequence.constraint->allowed();
    MAGISTER_CHECK(!allowed.empty(), ExitCode::kData,
                   "record {}, text {}: after {} tokens no token continues the constraint "
                   "(its grammar leads nowhere from there, or the vocabulary lacks the bytes); fix the constraint",
                   request.record, request.sample, sequence.logprobs.size());
  }
  const SampledToken token =
      row.drawn ? *row.drawn : sample_token(logits_V, sequence.tokens, allowed, sampling_, key_of(sequence));
  if (sequence.constraint && !sequence.constraint->accept(token.id)) {
    fail(ExitCode::kInternal,
         "record {}, text {}: token {} was allowed and then refused (mask and matcher disagree); report it "
         "with the constraint",
         request.record, request.sample, token.id);
  }
  sequence.tokens.push_back(token.id);
  sequence.logprobs.push_back(token.logprob);
  ++counts_.written_tokens;
}

// A NaN compares with nothing, so a token would be drawn all the same, and a verdict read.
void Generator::check_finite(const Sequence& sequence, const Row& row) const {
  const GenerationRequest& request = sequence.request;
  if (row.drawn ? row.drawn->id >= 0
                : std::all_of(row.logits_V.begin(), row.logits_V.end(), [](float z) { return std::isfinite(z); }))
    return;
  if (not_finite_) not_finite_(request.record, request.sample, sequence.tokens);
  fail(ExitCode::kData,
       "record {}, text {}, row {}: the model's logits are not finite (no token can follow); check the weights and the "
       "dtype",
       request.record, request.sample, sequence.tokens.size() - 1);
}

void Generator::accept(Sequence& sequence, const Row& row) {
  check_finite(sequence, row);
  const GenerationRequest& request = sequence.request;
  Generation done{request.record, request.sample, {}, {}, {}, {}, FinishReason::kLength, {}, sequence.cached};
  if (request.max_new_tokens == 0) {
    done.last_logits_V.assign(row.logits_V.begin(), row.logits_V.end());
    finished_.push_back(std::move(done));
    release(sequence);
    return;
  }
  sample(sequence, row);
  const std::vector<TokenId> written(sequence.tokens.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()),
                                     sequence.tokens.end());
  const bool complete = sequence.constraint && sequence.constraint->finished();
  const bool stops = complete || (stop_ && stop_(request.record, request.sample, written));
  if (!stops && static_cast<std::int64_t>(written.size()) < request.max_new_tokens) return;
  done.tokens = written;
  done.logprobs = std::move(sequence.logprobs);
  done.top_ids = std::move(sequence.top_ids);
  done.top_logprobs = std::move(sequence.top_logprobs);
  if (stops) done.finish_reason = FinishReason::kStop;
  finished_.push_back(std::move(done));
  release(sequence);
}

void Generator::step() {
  if (idle()) return;
  const std::vector<Sequence*> pass = schedule_pass();
  MAGISTER_ASSERT(!pass.empty() || !begun_.empty());
  copy_last_pages();
  std::vector<Sequence*> asked;
  std::vector<at::Tensor> logits;
  if (!pass.empty()) {
    ++counts_.passes;
    const at::Tensor hidden_RD = forward(pass);
    for (Sequence* sequence : pass) {
      sequence->computed += std::exchange(sequence->scheduled, 0);
      if (sequence->computed == static_cast<std::int64_t>(sequence->tokens.size())) asked.push_back(sequence);
    }
    if (!asked.empty()) logits.push_back(gather_logits(model_.logits(hidden_RD), model_.group()));
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (asked[i]->leads) keep_prompt(*asked[i], logits.front().narrow(0, static_cast<std::int64_t>(i), 1));
    }
  }
  for (Sequence* sequence : begun_) {
    SharedPrompt& prompt = *sequence->prompt;
    asked.push_back(sequence);
    logits.push_back(prompt.logits_1V);
    if (--prompt.waiting == 0) drop(prompt);
    sequence->prompt.reset();
  }
  begun_.clear();
  if (!asked.empty()) {
    at::Tensor on_host;
    // Joined rows are copies: those of a shared prompt stay as they are for the next text.
    const bool joins = logits.size() > 1 || pass.empty();
    const std::vector<Row> rows = rows_of(asked, joins ? at::cat(logits, 0) : logits.front(), on_host);
    for (std::size_t i = 0; i < asked.size(); ++i) accept(*asked[i], rows[i]);
  }
  std::erase_if(running_, [](const SequencePtr& sequence) { return sequence->pages.empty(); });
}

std::vector<Generation> Generator::take_finished() { return std::exchange(finished_, {}); }

}  // namespace magister
