// Prompts on their way to verdicts (tasks/judge/reader.h). They share the pages of their common beginning, and a row after a reply the pages of the
// reply's prompt.
#include "tasks/judge/run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/run/generator_shard.h"
#include "magister/run/shard_threads.h"
#include "magister/run/unit_samples.h"
#include "magister/tasks/judge/reader.h"

namespace magister {
namespace {

using Extent = ColumnSpec::Extent;

template <typename T, typename Get>
std::vector<std::byte> column_of(const std::vector<Verdict>& verdicts, const Get& get) {
  std::vector<std::byte> bytes(verdicts.size() * sizeof(T));
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const T value = get(verdicts[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// The columns of a unit's samples. combined: by text.
std::vector<ColumnBytes> judge_rows(const JudgeRun& run, const Unit& unit, const std::vector<JudgedPrompt>& prompts,
                                    const std::vector<CombinedVerdict>& combined) {
  std::vector<Verdict> verdicts;
  std::vector<std::byte> classes, order, prompt, replies;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    verdicts.push_back(prompts[i].verdict);
    const auto bytes = std::as_bytes(std::span(prompts[i].verdict.class_logprobs));
    classes.insert(classes.end(), bytes.begin(), bytes.end());
    order.push_back(static_cast<std::byte>((unit.samples.begin + i) % run.orders));
    prompt.push_back(static_cast<std::byte>((unit.samples.begin + i) % run.samples_a_text / run.orders));
    std::vector<TokenId> reply = prompts[i].reply;
    reply.resize(run.config.max_new_tokens.tokens(), -1);
    const auto ids = std::as_bytes(std::span(reply));
    replies.insert(replies.end(), ids.begin(), ids.end());
  }
  std::size_t next = 0;
  const auto of_text = [&](const Verdict&) -> const CombinedVerdict& { return combined[next++ / run.samples_a_text]; };
  std::vector<ColumnBytes> rows = {
      {"/judge/verdict", column_of<std::int32_t>(verdicts, [](const Verdict& v) { return v.verdict; }), true},
      {"/judge/probability", column_of<float>(verdicts, [](const Verdict& v) { return v.probability; }), true},
      {"/judge/log_odds", column_of<float>(verdicts, [](const Verdict& v) { return v.log_odds; }), true},
      {"/judge/margin", column_of<float>(verdicts, [](const Verdict& v) { return v.margin; }), true},
      {"/judge/mass", column_of<float>(verdicts, [](const Verdict& v) { return v.mass; }), true},
      {"/judge/expected", column_of<float>(verdicts, [](const Verdict& v) { return v.expected; }), true},
      {"/judge/class_logprob", std::move(classes), true},
      {"/judge/parse",
       column_of<std::uint8_t>(verdicts, [](const Verdict& v) { return static_cast<std::uint8_t>(v.parse); }), true},
      {"/judge/order", std::move(order), true},
      {"/judge/prompt", std::move(prompt), true},
      {"/judge/combined", column_of<std::int32_t>(verdicts, [&](const Verdict& v) { return of_text(v).verdict; }),
       true}};
  next = 0;
  rows.push_back({"/judge/combined_probability",
                  column_of<float>(verdicts, [&](const Verdict& v) { return of_text(v).probability; }), true});
  if (run.config.max_new_tokens.tokens() > 0) rows.push_back({"/judge/reply_id", std::move(replies), true});
  return rows;
}

class JudgeWorker final : public GeneratorShard {
 public:
  JudgeWorker(const JudgeRun& run, std::unique_ptr<ProcessGroup> group, ShardPlace place)
      : GeneratorShard(run.base, std::move(group), place),
        run_(run),
        reader_({run.config, run.classes, run.tokens, run.tokenizer, run.ends}) {
    const GeneratorLimits limits{.max_sequences = static_cast<std::int64_t>(run_.config.max_sequences),
                                 .token_budget = static_cast<std::int64_t>(run_.config.token_budget),
                                 .num_pages = run_.num_pages,
                                 .share_prefixes = run_.config.share_prefixes};
    SamplingParams greedy;
    greedy.temperature = 0;
    greedy.rules = run_.rules;
    // More prompts than one pass takes.
    start(
        limits, greedy, 0, [this](auto, auto, const auto& reply) { return reader_.ends(reply); },
        2 * run_.config.max_sequences);
  }

 private:
  struct Open {
    Unit unit;
    std::vector<JudgedPrompt> prompts;
    std::uint64_t missing = 0;
  };
  std::uint64_t begin_unit(const Unit& unit) override {
    std::vector<std::vector<TokenId>> prompts = sample_tokens(base_.file, unit);
    Open& open = open_[unit.index] = {unit, {}, unit.samples.size()};
    for (std::size_t i = 0; i < unit.samples.size(); ++i) {
      open.prompts.push_back(reader_.begin(std::move(prompts[i])));
      generator_->add(reader_.request(unit.index, i, open.prompts[i]));
    }
    return unit.samples.size();
  }

  std::vector<CombinedVerdict> combined(const Open& open) const {
    const std::size_t samples = std::max<std::size_t>(1, run_.samples_a_text);
    std::vector<CombinedVerdict> all;
    for (std::size_t first = 0; first < open.prompts.size(); first += samples) {
      std::vector<Vote> votes;
      for (std::size_t i = first; i < first + samples; ++i) {
        const Verdict& verdict = open.prompts[i].verdict;
        votes.push_back(vote_of(verdict.verdict, verdict.class_logprobs, verdict.parse, i % run_.orders == 1));
      }
      if (run_.panel != nullptr) {
        const std::lock_guard lock(base_.work.one_group);
        run_.panel->add_votes((open.unit.samples.begin + first) / samples, votes);
      }
      all.push_back(combine(votes, run_.classes.size(), run_.config.combine));
    }
    return all;
  }

  std::uint64_t take(Generation&& answer) override {
    const auto found = open_.find(answer.record);
    Open& open = found->second;
    JudgedPrompt& prompt = open.prompts[answer.sample];
    reader_.take(prompt, answer);
    if (!prompt.done()) {
      generator_->add(reader_.request(answer.record, answer.sample, prompt));
      return 0;
    }
    if (--open.missing > 0) return 1;
    fail_point("judge.unit.done");
    if (writer_) submit(open.unit, judge_rows(run_, open.unit, open.prompts, combined(open)));
    open_.erase(found);
    return 1;
  }

  std::uint64_t sample_of(std::uint64_t unit, std::uint64_t sample) const override {
    return open_.at(unit).unit.samples.begin + sample;
  }

  void before_pass() override {
    watch("judge");
    fail_point("judge.pass");
  }

  const JudgeRun& run_;
  VerdictReader reader_;
  std::map<std::uint64_t, Open> open_;  // in-flight units
};

}  // namespace

std::vector<ColumnSpec> judge_columns(const JudgeShape& shape) {
  const std::uint64_t n = shape.num_samples;
  std::vector<ColumnSpec> columns =
      sample_columns(n, shape.num_tokens, shape.key_bytes, "rows of prompt i are offset[i] .. offset[i+1] of /tokens",
                     "the prompts as the judge saw them");
  columns.insert(
      columns.end(),
      {
          {"/judge/verdict", ColumnType::kI32, n, 0,
           "number of the most probable verdict; names: root attribute verdicts; -1: none, or several", "",
           Extent::kSamples},
          {"/judge/probability", ColumnType::kF32, n, 0, "of that verdict among all verdicts", "", Extent::kSamples},
          {"/judge/log_odds", ColumnType::kF32, n, 0, "of the first verdict against all others", "nat",
           Extent::kSamples},
          {"/judge/margin", ColumnType::kF32, n, 0, "the best verdict over the second", "nat", Extent::kSamples},
          {"/judge/mass", ColumnType::kF32, n, 0, "probability of all verdicts together in the whole distribution", "",
           Extent::kSamples},
          {"/judge/expected", ColumnType::kF32, n, 0,
           "sum of (number + 1) * probability among the verdicts: the expected score of a rubric", "",
           Extent::kSamples},
          {"/judge/class_logprob", ColumnType::kF32, n, shape.classes, "of each verdict in the whole distribution",
           "nat", Extent::kSamples},
          {"/judge/parse", ColumnType::kU8, n, 0,
           "0: ok; 1: low_mass, the model wanted to write something else; 2: unparsed, its reply holds no verdict; 3: "
           "truncated, its reply was cut off; 4: tie, several verdicts are the most probable ones",
           "", Extent::kSamples},
          {"/judge/order", ColumnType::kU8, n, 0, "of a pair: 0 as given, 1 with the answers exchanged", "",
           Extent::kSamples},
          {"/judge/prompt", ColumnType::kU8, n, 0, "number of the prompt that judged", "", Extent::kSamples},
          {"/judge/combined", ColumnType::kI32, n, 0,
           "verdict of all prompts, orders and judges on this text (a pair: as given); -1: undecided", "",
           Extent::kSamples},
          {"/judge/combined_probability", ColumnType::kF32, n, 0,
           "of it: among the verdicts, or its share of the votes", "", Extent::kSamples},
      });
  if (shape.reply_tokens > 0) {
    columns.push_back({"/judge/reply_id", ColumnType::kI32, n, shape.reply_tokens,
                       "tokens of the judge's reply, -1 behind its end", "", Extent::kSamples});
  }
  return columns;
}

void run_judge_units(const JudgeRun& run) {
  run_shards(run.base.group, run.base.work.tickets, [&](std::unique_ptr<ProcessGroup> group, ShardPlace place) {
    JudgeWorker(run, std::move(group), place).run_units();
  });
}

}  // namespace magister
