// The loop of a generator's shard: claim units, run a pass, pass finished units to the writer.
#include "magister/run/generator_shard.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <thread>

#include "magister/core/error.h"
#include "magister/model/rope.h"
#include "magister/run/not_finite.h"
#include "magister/run/shard_threads.h"
#include "magister/runtime/length_key.h"

namespace magister {

void check_positions(const ModelConfig& model, const std::string& length_place, std::uint64_t max_prompt_length,
                     std::uint64_t max_new_tokens) {
  const std::uint64_t longest = max_prompt_length + max_new_tokens;
  const std::string lengths = max_new_tokens == 0
                                  ? fmt::format("{} is {}", length_place, max_prompt_length)
                                  : fmt::format("{} is {} and max_new_tokens {}, together {}", length_place,
                                                max_prompt_length, max_new_tokens, longest);
  const char* const what = max_new_tokens == 0 ? "lower it" : "lower one of them";
  const std::uint64_t positions = positions_of(model).whole;
  const bool fits = positions == 0 || longest <= positions;
  MAGISTER_CHECK(fits || model.rope.fixed_length == 0, ExitCode::kConfig,
                 "{}, but the rotary frequencies that model.rope_length chooses are for {} positions (texts beyond "
                 "them would be meaningless); {}, or leave rope_length out",
                 lengths, positions, what);
  MAGISTER_CHECK(fits, ExitCode::kConfig,
                 "{}, but the model was made for {} positions (texts beyond them would be meaningless); {}, or leave "
                 "it to the model with auto",
                 lengths, positions, what);
  MAGISTER_CHECK(longest <= static_cast<std::uint64_t>(positions_of_shared_rope(model)), ExitCode::kInternal,
                 "{}, but from {} positions on this model's rotary frequencies depend on a text's length, and none is "
                 "fixed for the task; report this",
                 lengths, positions_of_shared_rope(model));
}

std::int64_t pages_of_texts(const OpenModel& model, int tp_size, const PassShape& pass, std::uint64_t longest_text,
                            std::uint64_t max_sequences) {
  const std::uint64_t a_text = (longest_text + KvPages::kSlots - 1) / KvPages::kSlots + 1;
  const std::uint64_t affordable = model.cache_budget_bytes(tp_size, pass) / model.page_bytes(tp_size);
  return static_cast<std::int64_t>(std::max(a_text + 1, std::min(a_text * max_sequences, affordable)));
}

SampleRules prompt_rules(const TextLengths& lengths, std::int64_t vocab_size, const Tokenizer* tokenizer) {
  SampleRules rules;
  rules.max_length = lengths.max_prompt_length.tokens();
  rules.overflow = Overflow::kError;
  rules.length_key = "max_prompt_length";
  rules.may_cut = false;
  rules.vocab_size = vocab_size;
  rules.tokenizer = tokenizer;
  rules.unit_tokens = rules.max_length;
  rules.unit_samples = 1;
  rules.min_length = 1;
  rules.shown_as = "prompt";
  return rules;
}

void GeneratorShard::start(const BatchKeys& batch, const SamplingParams& sampling, std::uint64_t seed,
                           Generator::Stop stop, std::uint64_t room, std::uint64_t top_logprobs) {
  const GeneratorLimits limits{.max_sequences = static_cast<std::int64_t>(batch.max_sequences),
                               .token_budget = static_cast<std::int64_t>(batch.token_budget),
                               .num_pages = base_.cache_pages,
                               .share_prefixes = batch.share_prefixes,
                               .top_logprobs = static_cast<std::int64_t>(top_logprobs)};
  generator_.emplace(model_, limits, sampling, seed, std::move(stop));
  refuse_not_finite_rows(*generator_, model_);
  room_ = room;
}

void GeneratorShard::refuse_not_finite_rows(Generator& generator, Transformer& model) {
  generator.on_not_finite(
      [this, &model](std::uint64_t record, std::uint64_t sample, const std::vector<TokenId>& tokens) {
        refuse_not_finite(model, describe_record(base_.file, sample_of(record, sample)), tokens.size() - 1, tokens);
      });
}

// All shards use the smallest number of pages, because they must evict the same pages.
void GeneratorShard::guide(const ShardGuide& guide) {
  if (guide.params.multiplier == 0) return;
  {
    const PhaseTimes::Span span(times_, "load");
    value_.emplace(guide.load(group_, pool_, [this] { watch("load the value model"); }));
  }
  generator_->guide({&*value_, guide.params, group_.least_number(guide.pages)});
}

// All shards use the smallest number of pages, as for a guide.
void GeneratorShard::load_second(const ShardSecond& second) {
  {
    const PhaseTimes::Span span(times_, "load");
    second_model_.emplace(second.load(group_, pool_, [this, &second] { watch(second.loads); }));
  }
  GeneratorLimits limits = second.limits;
  limits.num_pages = group_.least_number(limits.num_pages);
  second_.emplace(*second_model_, limits, second.sampling, 0, [](auto, auto, const auto&) { return false; });
  refuse_not_finite_rows(*second_, *second_model_);
}

void GeneratorShard::run_units() {
  if (before_units() && run_passes([this] { return fill(); })) after_units();
  if (value_) times_.add("the value model's passes", generator_->counts().guide_seconds);
  report_written(true);
  drain();
}

bool GeneratorShard::run_passes() {
  return run_passes([] { return false; });
}

bool GeneratorShard::run_passes(const std::function<bool()>& fill) {
  while (fill() || !idle()) {
    if (stop_agreed()) {
      base_.work.tickets.request_stop();
      return false;
    }
    before_pass();
    {
      const PhaseTimes::Span span(times_, "compute");
      if (!generator_->idle()) generator_->step();
      if (second_ && !second_->idle()) second_->step();
    }
    take_finished_of(*generator_);
    if (second_) take_finished_of(*second_);
    in_flight_.tokens = generator_->counts().computed_tokens + (second_ ? second_->counts().computed_tokens : 0);
    report_written(false);
    if (is_first_in_rank_) base_.work.report_in_flight(in_flight_);
  }
  return true;
}

void GeneratorShard::take_finished_of(Generator& generator) {
  for (Generation& answer : generator.take_finished()) {
    const std::uint64_t done = take(std::move(answer));
    under_way_ -= done;
    if (done > 0) holds_its_share_ = false;
    in_flight_.texts_done += done;
  }
}

bool GeneratorShard::wait_for_all_units() {
  constexpr std::chrono::milliseconds kPause{20};
  enum : std::int64_t { kWait, kAllDone, kStopped };
  UnitTickets& tickets = base_.work.tickets;
  if (writer_) writer_->drain([this] { watch("write the last unit"); });
  wait_for_others("wait for the units of other groups");
  std::int64_t state = kWait;
  while (state == kWait) {
    if (group_.tp_rank() == 0) {
      if (base_.stop_wanted()) tickets.request_stop();
      state = tickets.progress().units_done == base_.file.pending_units().size() ? kAllDone
              : tickets.stop_requested()                                         ? kStopped
                                                                                 : kWait;
      if (state == kWait) std::this_thread::sleep_for(kPause);
      base_.work.report_progress();
    }
    if (group_.tp_size() > 1) state = group_.broadcast_number(state, 0);
  }
  watch("read the units of other groups");
  if (state == kAllDone && is_first_in_rank_) base_.file.reopen();
  if (group_.tp_size() > 1) group_.broadcast_number(0, 0);  // no shard reads before the file is open again
  return state == kAllDone;
}

// Reports the written tokens to all ranks at most ten times a second: a text may take minutes, and a pass of a small
// model a tenth of a millisecond.
void GeneratorShard::report_written(bool last) {
  constexpr std::chrono::milliseconds kPause{100};
  const std::uint64_t written = generator_->counts().written_tokens;
  const auto now = std::chrono::steady_clock::now();
  if (!writer_ || written == reported_written_ || (!last && now < next_report_)) return;
  base_.work.tickets.report_written(written - reported_written_);
  reported_written_ = written;
  next_report_ = now + kPause;
}

// Claims units until there is no room. False if no sequence is in flight and no unit is left. Collective over the
// group.
bool GeneratorShard::fill() {
  const PhaseTimes::Span span(times_, "claim");
  const auto claims = [this] { return !exhausted_ && !holds_its_share_ && under_way_ < room_; };
  if (!claims()) return under_way_ > 0;
  UnitTickets& tickets = base_.work.tickets;
  const std::uint64_t most = group_.tp_rank() == 0 ? tickets.fair_share() : 0;
  while (claims()) {
    const bool may_hold_more = units_held_ == 0 || units_held_ < most;
    const GroupClaim claim = claim_another(group_, tickets, base_.stop_wanted, may_hold_more);
    if (!claim.unit) {
      (claim.none_left ? exhausted_ : holds_its_share_) = true;
      break;
    }
    const std::uint64_t begun = begin_unit(base_.file.unit(*claim.unit));
    ++units_held_;
    under_way_ += begun;
    in_flight_.texts_begun += begun;
    ++in_flight_.units_begun;
  }
  return under_way_ > 0;
}

GeneratorShard::RecordPrompt GeneratorShard::prompt_of(const Unit& unit) const {
  MAGISTER_ASSERT(unit.samples.size() == 1);
  RecordPrompt prompt;
  base_.file.read("/samples/source_index", unit.samples.begin, std::as_writable_bytes(std::span(&prompt.record, 1)));
  prompt.tokens.resize(unit.rows.size());
  base_.file.read("/tokens/id", unit.rows.begin, std::as_writable_bytes(std::span(prompt.tokens)));
  return prompt;
}

void GeneratorShard::submit(const Unit& unit, std::vector<ColumnBytes> columns) {
  --units_held_;
  writer_->submit(unit, std::move(columns));
  base_.work.report_progress();
}

}  // namespace magister
