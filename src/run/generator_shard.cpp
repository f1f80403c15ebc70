// The loop of a generator's shard: claim units, run a pass, pass finished units to the writer.
#include "magister/run/generator_shard.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

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
  generator_->on_not_finite([this](std::uint64_t record, std::uint64_t sample, const std::vector<TokenId>& tokens) {
    refuse_not_finite(model_, describe_record(base_.file, sample_of(record, sample)), tokens.size() - 1, tokens);
  });
  room_ = room;
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

void GeneratorShard::run_units() {
  while (fill() || !generator_->idle()) {
    if (stop_agreed()) {
      base_.work.tickets.request_stop();
      break;
    }
    before_pass();
    {
      const PhaseTimes::Span span(times_, "compute");
      generator_->step();
    }
    for (Generation& answer : generator_->take_finished()) {
      const std::uint64_t done = take(std::move(answer));
      under_way_ -= done;
      if (done > 0) holds_its_share_ = false;
      in_flight_.texts_done += done;
    }
    in_flight_.tokens = generator_->counts().computed_tokens;
    report_written(false);
    if (is_first_in_rank_) base_.work.report_in_flight(in_flight_);
  }
  if (value_) times_.add("the value model's passes", generator_->counts().guide_seconds);
  report_written(true);
  drain();
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
