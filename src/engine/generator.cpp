// One pass: the scheduler chooses the tokens, the model runner computes them, the row sampler draws, and finished texts
// are collected.
#include "magister/engine/generator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "engine/model_runner.h"
#include "engine/row_sampler.h"
#include "engine/scheduler.h"
#include "engine/value_guide.h"
#include "magister/core/error.h"
#include "magister/device/upload.h"

namespace magister {

// A pass that is queued, and whose tokens are not on the host yet.
struct Generator::InFlight {
  std::vector<Sequence*> texts;  // null: ended while the pass was under way; its row is ignored
  DrawnRows drawn;
  bool is_ahead = false;
  bool all_finished() const {
    return std::all_of(texts.begin(), texts.end(), [](const Sequence* text) { return text == nullptr; });
  }
};

struct Generator::Parts {
  Parts(Transformer& the_model, const GeneratorLimits& limits, std::shared_ptr<const Decoding> usual_decoding)
      : model(the_model),
        config(model.config()),
        usual(std::move(usual_decoding)),
        token_budget(limits.token_budget),
        schedules_ahead(limits.schedules_ahead),
        sampler(model, limits),
        scheduler(limits, model.separates_prefill()),
        runner(model, limits.num_pages, limits.max_sequences) {}
  Transformer& model;
  const ModelConfig& config;
  std::shared_ptr<const Decoding> usual;
  std::int64_t token_budget;
  bool schedules_ahead;
  RowSampler sampler;
  Scheduler scheduler;
  ModelRunner runner;
  std::optional<ValueGuide> guide;
  std::optional<InFlight> ahead;
};

struct Generator::Rows : RowSampler::Rows {};

Generator::Generator(Transformer& model, const GeneratorLimits& limits, const SamplingParams& sampling,
                     std::uint64_t seed, Stop stop)
    : Generator(model, limits, std::make_shared<const Decoding>(sampling, seed, std::move(stop))) {}

Generator::Generator(Transformer& model, const GeneratorLimits& limits, std::shared_ptr<const Decoding> usual) {
  MAGISTER_CHECK(
      limits.num_pages >= 2 && limits.max_sequences >= 1 && limits.token_budget >= 1, ExitCode::kConfig,
      "the generator has {} pages, {} sequences and {} tokens per pass (nothing could be written); give it more",
      limits.num_pages, limits.max_sequences, limits.token_budget);
  usual->check_vocabulary(model.config().vocab_size);
  GeneratorLimits of_model = limits;
  if (model.config().delta) of_model.share_prefixes = false;  // a page of keys says nothing of the states behind it
  parts_ = std::make_unique<Parts>(model, of_model, std::move(usual));
}
Generator::~Generator() = default;

void Generator::guide(const GuideSetup& setup) {
  MAGISTER_ASSERT(idle());
  if (setup.params.multiplier == 0) return;
  parts_->guide.emplace(setup, parts_->config, parts_->token_budget);
  parts_->sampler.read_guided_rows(setup.params.candidates, setup.value_model->config().vocab_size);
}

void Generator::add(GenerationRequest request, std::uint64_t count) {
  MAGISTER_CHECK(!request.prompt.empty(), ExitCode::kData,
                 "record {}: the prompt has no token (nothing can follow it); give it text", request.record);
  if (request.decoding) request.decoding->check_vocabulary(parts_->config.vocab_size);
  if (!request.decoding) request.decoding = parts_->usual;
  MAGISTER_ASSERT(request.wanted.empty() || (request.max_new_tokens == 0 && count == 1));
  if (parts_->guide && request.guided) {
    parts_->guide->check_fits(request.record,
                              static_cast<std::int64_t>(request.prompt.size()) + request.max_new_tokens);
  }
  parts_->scheduler.add(std::move(request), count);
}

bool Generator::cancel(std::uint64_t record, std::uint64_t sample) {
  const std::unique_ptr<Sequence> sequence = parts_->scheduler.take_out(record, sample);
  if (!sequence) return false;
  if (parts_->guide) parts_->guide->release(*sequence);
  if (parts_->ahead)
    std::replace(parts_->ahead->texts.begin(), parts_->ahead->texts.end(), sequence.get(),
                 static_cast<Sequence*>(nullptr));
  return true;
}

bool Generator::idle() const { return parts_->scheduler.idle(); }

// A check is needed, because a NaN compares with nothing: a token would be drawn or a verdict read without notice.
void Generator::refuse_not_finite(const Sequence& sequence) const {
  const GenerationRequest& request = sequence.request;
  if (not_finite_) not_finite_(request.record, request.sample, sequence.tokens);
  fail(ExitCode::kData,
       "record {}, text {}, row {}: the model's logits are not finite (no token can follow); check the weights and the "
       "dtype",
       request.record, request.sample, sequence.tokens.size() - 1);
}

// The sequence has a new token: ends the sequence, or lets it continue.
void Generator::extend(Sequence& sequence, const SampledToken& token) {
  const GenerationRequest& request = sequence.request;
  const Decoding& decoding = *request.decoding;
  decoding.report_token(request.record, request.sample, token);
  const std::vector<TokenId> written(sequence.tokens.begin() + sequence.num_prompt_tokens(), sequence.tokens.end());
  const bool complete = sequence.constraint && sequence.constraint->finished();
  const bool stops = complete || decoding.stops(request.record, request.sample, written);
  if (!stops && static_cast<std::int64_t>(written.size()) < request.max_new_tokens) return;
  Generation done;
  done.record = request.record;
  done.sample = request.sample;
  done.tokens = written;
  done.logprobs = std::move(sequence.logprobs);
  done.top_ids = std::move(sequence.top_ids);
  done.top_logprobs = std::move(sequence.top_logprobs);
  done.guide_kl = std::move(sequence.guide_kl);
  done.finish_reason = stops ? FinishReason::kStop : FinishReason::kLength;
  done.cached_tokens = sequence.cached;
  finished_.push_back(std::move(done));
  parts_->scheduler.release(sequence);
}

// The result for a sequence that asked only for the row after the prompt.
Generation Generator::row_of(const Sequence& sequence) const {
  Generation row;
  row.record = sequence.request.record;
  row.sample = sequence.request.sample;
  row.cached_tokens = sequence.cached;
  return row;
}

void Generator::answer(Sequence& sequence, Generation row) {
  finished_.push_back(std::move(row));
  parts_->scheduler.release(sequence);
}

// Draws a token for each sequence, or returns the row that was asked for.
void Generator::write(const std::vector<Sequence*>& asked, const Rows& rows) {
  std::vector<std::size_t> guided;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (asked[i] == nullptr) continue;
    const RowSampler::Row& row = rows.rows[i];
    if (!row.is_finite()) refuse_not_finite(*asked[i]);
    if (asked[i]->request.max_new_tokens == 0) {
      Generation done = row_of(*asked[i]);
      done.last_logits_V.assign(row.logits_V.begin(), row.logits_V.end());
      answer(*asked[i], std::move(done));
      continue;
    }
    ++counts_.written_tokens;
    if (parts_->guide && asked[i]->request.guided) {
      guided.push_back(i);
      continue;
    }
    extend(*asked[i], parts_->sampler.sample(*asked[i], row));
  }
  if (!guided.empty()) write_guided(asked, rows, guided);
}

// The value model rates the best tokens of each row (after bias, penalty and constraint), and the draw is among them.
void Generator::write_guided(const std::vector<Sequence*>& asked, const Rows& rows,
                             const std::vector<std::size_t>& which) {
  const RowSampler& sampler = parts_->sampler;
  ValueGuide& guide = *parts_->guide;
  std::vector<ValueGuide::Asked> all;
  std::vector<std::vector<float>> references;
  for (const std::size_t i : which) {
    ValueGuide::Asked& one = all.emplace_back(ValueGuide::Asked{asked[i], {}});
    if (const auto& known = rows.rows[i].candidates) {
      for (const TokenId id : known->ids) one.tokens.push_back({id, 0});
      references.emplace_back();
      continue;
    }
    references.push_back(sampler.processed(*asked[i], rows.rows[i].logits_V));
    for (const TokenId id : best_tokens(references.back(), guide.params().candidates)) one.tokens.push_back({id, 0});
  }
  for (std::size_t first = 0; first < all.size();) {
    const std::size_t count = guide.rescore(std::span(all).subspan(first));
    for (std::size_t j = first; j < first + count; ++j) {
      Sequence& sequence = *all[j].sequence;
      const auto& known = rows.rows[which[j]].candidates;
      const double kl =
          known ? guide_kl(known->logits, known->logsumexp, all[j].tokens) : guide_kl(references[j], all[j].tokens);
      sequence.guide_kl.push_back(static_cast<float>(kl));
      const SampledToken token = sampler.sample(sequence, rows.rows[which[j]], all[j].tokens);
      guide.keep(all[j]);
      extend(sequence, token);
      if (sequence.pages.empty()) guide.release(sequence);  // the sequence has ended
    }
    first += count;
  }
  counts_.guide_tokens = guide.num_computed_tokens();
  counts_.guide_seconds = guide.pass_seconds();
}

// Answers the sequences that want only some tokens, and removes them from `asked`.
void Generator::answer_wanted(std::vector<Sequence*>& asked, std::vector<WantedRow> rows) {
  std::size_t next = 0;
  std::erase_if(asked, [&](Sequence* sequence) {
    if (sequence->request.wanted.empty()) return false;
    WantedRow& row = rows[next++];
    if (!std::isfinite(row.logsumexp)) refuse_not_finite(*sequence);
    Generation done = row_of(*sequence);
    done.wanted_logits = std::move(row.logits);
    done.logsumexp = row.logsumexp;
    answer(*sequence, std::move(done));
    return true;
  });
  MAGISTER_ASSERT(next == rows.size());
}

// Runs a scheduled pass. std::nullopt: its tokens are already drawn.
std::optional<Generator::InFlight> Generator::begin() {
  Scheduler& scheduler = parts_->scheduler;
  const RowSampler& sampler = parts_->sampler;
  const Scheduler::Pass pass = scheduler.schedule();
  MAGISTER_ASSERT(!pass.computed.empty() || !pass.begun.empty());
  ModelRunner::Rows computed = parts_->runner.run(pass);
  std::vector<Sequence*> asked = Scheduler::advance(pass);
  answer_wanted(asked, std::move(computed.wanted));
  const at::Tensor& computed_RV = computed.logits_RV;
  std::vector<at::Tensor> logits;
  if (computed_RV.defined()) logits.push_back(computed_RV);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (asked[i]->leads) scheduler.keep_prompt(*asked[i], computed_RV.narrow(0, static_cast<std::int64_t>(i), 1));
  }
  for (Sequence* sequence : pass.begun) {
    asked.push_back(sequence);
    logits.push_back(scheduler.take_prompt_row(*sequence));
  }
  counts_.passes += pass.computed.empty() ? 0 : 1;
  if (asked.empty()) return {};
  // Joined rows are copies, so the row of a shared prompt stays unchanged for the next text.
  const bool joins = logits.size() > 1 || !computed_RV.defined();
  const at::Tensor logits_RV = joins ? at::cat(logits, 0) : logits.front();
  if (parts_->schedules_ahead && sampler.draws_all_on_device(asked)) {
    DrawnRows drawn = sampler.begin_drawing(asked, logits_RV, 0);
    return InFlight{std::move(asked), std::move(drawn)};
  }
  write(asked, Rows{sampler.read(asked, logits_RV)});
  return {};
}

// Queues the next pass before the tokens of `now` are known; std::nullopt if it must wait for them.
std::optional<Generator::InFlight> Generator::begin_ahead(const InFlight& now) {
  std::vector<Sequence*> drawing;
  std::copy_if(now.texts.begin(), now.texts.end(), std::back_inserter(drawing),
               [](Sequence* text) { return text != nullptr; });
  std::int64_t longest = 0;
  for (const Sequence* text : drawing) longest = std::max(longest, text->num_tokens() + 1);
  if (!parts_->model.takes_drawn_ids(static_cast<std::int64_t>(drawing.size()), longest)) return {};
  std::vector<Sequence*> texts = parts_->scheduler.schedule_ahead(drawing, now.is_ahead);
  if (texts.empty()) return {};
  at::Tensor ids_R = now.drawn.ids_R;
  if (texts.size() != now.texts.size()) {
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0, next = 0; i < now.texts.size() && next < texts.size(); ++i) {
      if (now.texts[i] != texts[next]) continue;
      rows.push_back(static_cast<std::int64_t>(i));
      ++next;
    }
    ids_R = ids_R.index_select(0, upload(at::tensor(rows, at::kLong), ids_R.device()));
  }
  // A rule of the model may begin to apply with the token after the unknown one.
  const bool draws = parts_->sampler.draws_all_on_device(texts, 1);
  const at::Tensor logits_RV = draws ? parts_->runner.run_ahead(texts, ids_R) : at::Tensor();
  if (!logits_RV.defined()) {
    for (Sequence* text : texts) text->scheduled = 0;
    return {};
  }
  DrawnRows drawn = parts_->sampler.begin_drawing(texts, logits_RV, 1);
  return InFlight{std::move(texts), std::move(drawn), true};
}

// Waits for the tokens. Sequences that end with them are removed from the pass that is already queued.
void Generator::finish(const InFlight& now) {
  write(now.texts, Rows{parts_->sampler.finish_drawing(now.drawn)});
  if (!parts_->ahead) return;
  for (Sequence*& text : parts_->ahead->texts) {
    if (text->pages.empty()) text = nullptr;
  }
}

// The device computes the next pass while the host processes the tokens of this one.
void Generator::step() {
  Scheduler& scheduler = parts_->scheduler;
  if (scheduler.idle()) return;
  std::optional<InFlight> now = std::exchange(parts_->ahead, std::nullopt);
  if (now && now->all_finished()) now.reset();
  if (now) {
    Scheduler::advance_ahead(now->texts);
    ++counts_.passes;
    ++counts_.ahead_passes;
  } else {
    now = begin();
  }
  if (now) {
    parts_->ahead = begin_ahead(*now);
    finish(*now);
  }
  counts_.computed_tokens = parts_->runner.num_computed_tokens();
  counts_.cached_tokens = scheduler.num_cached_tokens();
  counts_.preemptions = scheduler.num_preemptions();
  scheduler.remove_finished();
}

std::vector<Generation> Generator::take_finished() { return std::exchange(finished_, {}); }

}  // namespace magister
