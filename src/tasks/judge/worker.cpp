// Leads prompts to verdicts (tasks/judge/reader.h). Prompts share the pages of their common beginning, and the row
// after a reply shares the pages of the reply's prompt.
#include "tasks/judge/worker.h"

#include <algorithm>
#include <functional>
#include <map>

#include "magister/core/fail_point.h"
#include "magister/run/generator_shard.h"
#include "magister/run/unit_samples.h"
#include "magister/tasks/judge/reader.h"
#include "tasks/judge/columns.h"

namespace magister {
namespace {

template <typename T, typename Get>
ColumnBytes column_of(const Column<T>& column, const std::vector<Verdict>& verdicts, const Get& get) {
  std::vector<T> values;
  values.reserve(verdicts.size());
  for (const Verdict& verdict : verdicts) values.push_back(static_cast<T>(std::invoke(get, verdict)));
  return samples_column(column, values);
}

// The columns of a unit's samples. combined: by text.
std::vector<ColumnBytes> judge_rows(const JudgeSetup& setup, const Unit& unit, const std::vector<JudgedPrompt>& prompts,
                                    const std::vector<CombinedVerdict>& combined) {
  const std::uint64_t orders = setup.prompts.orders(), samples_a_text = setup.prompts.group();
  std::vector<Verdict> verdicts;
  std::vector<float> classes;
  std::vector<std::uint8_t> order, prompt;
  std::vector<TokenId> replies;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    verdicts.push_back(prompts[i].verdict);
    const auto& logprobs = prompts[i].verdict.class_logprobs;
    classes.insert(classes.end(), logprobs.begin(), logprobs.end());
    order.push_back(static_cast<std::uint8_t>((unit.samples.begin + i) % orders));
    prompt.push_back(static_cast<std::uint8_t>((unit.samples.begin + i) % samples_a_text / orders));
    std::vector<TokenId> reply = prompts[i].reply;
    reply.resize(setup.config.max_new_tokens.tokens(), -1);
    replies.insert(replies.end(), reply.begin(), reply.end());
  }
  std::size_t next = 0;
  const auto of_text = [&](const Verdict&) -> const CombinedVerdict& { return combined[next++ / samples_a_text]; };
  using namespace judge_column;
  std::vector<ColumnBytes> rows = {column_of(kVerdict, verdicts, &Verdict::verdict),
                                   column_of(kProbability, verdicts, &Verdict::probability),
                                   column_of(kLogOdds, verdicts, &Verdict::log_odds),
                                   column_of(kMargin, verdicts, &Verdict::margin),
                                   column_of(kMass, verdicts, &Verdict::mass),
                                   column_of(kExpected, verdicts, &Verdict::expected),
                                   samples_column(kClassLogprob, classes),
                                   column_of(kParse, verdicts, &Verdict::parse),
                                   samples_column(kOrder, order),
                                   samples_column(kPrompt, prompt),
                                   column_of(kCombined, verdicts, [&](const auto& v) { return of_text(v).verdict; })};
  next = 0;
  rows.push_back(column_of(kCombinedProbability, verdicts, [&](const auto& v) { return of_text(v).probability; }));
  if (setup.config.max_new_tokens.tokens() > 0) rows.push_back(samples_column(kReplyId, replies));
  return rows;
}

class JudgeWorker final : public GeneratorShard {
 public:
  JudgeWorker(ShardContext shard, const JudgeSetup& setup)
      : GeneratorShard(std::move(shard)),
        setup_(setup),
        reader_({setup.config, setup.classes, setup.tokens, setup.tokenizer, setup.ends}) {
    SamplingParams greedy;
    greedy.temperature = 0;
    greedy.rules = setup_.rules;
    // Claims more prompts than one pass takes.
    start(
        setup_.config, greedy, 0, [this](auto, auto, const auto& reply) { return reader_.ends(reply); },
        2 * setup_.config.max_sequences);
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
    const std::size_t samples = std::max<std::size_t>(1, setup_.prompts.group());
    std::vector<CombinedVerdict> all;
    for (std::size_t first = 0; first < open.prompts.size(); first += samples) {
      std::vector<Vote> votes;
      for (std::size_t i = first; i < first + samples; ++i) {
        const Verdict& verdict = open.prompts[i].verdict;
        votes.push_back(
            vote_of(verdict.verdict, verdict.class_logprobs, verdict.parse, i % setup_.prompts.orders() == 1));
      }
      if (setup_.panel) {
        const std::lock_guard lock(base_.work.one_group);
        setup_.panel->add_votes((open.unit.samples.begin + first) / samples, votes);
      }
      all.push_back(combine(votes, setup_.classes.size(), setup_.config.combine));
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
    if (writer_) submit(open.unit, judge_rows(setup_, open.unit, open.prompts, combined(open)));
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

  const JudgeSetup& setup_;
  VerdictReader reader_;
  std::map<std::uint64_t, Open> open_;  // units in flight
};

}  // namespace

JudgeSetup::JudgeSetup(JudgeConfig judge, Checkpoint& checkpoint)
    : config(std::move(judge)),
      tokenizer(checkpoint.tokenizer()),
      prompts(config, checkpoint),
      classes(prompts.classes()),
      tokens(verdict_tokens(tokenizer, classes)) {
  if (config.max_new_tokens.tokens() == 0) return;
  ends = checkpoint.end_tokens();
  std::sort(ends.begin(), ends.end());
  rules = checkpoint.rules();
}

std::unique_ptr<ShardWorker> make_judge_worker(ShardContext shard, const JudgeSetup& setup) {
  return std::make_unique<JudgeWorker>(std::move(shard), setup);
}

}  // namespace magister
