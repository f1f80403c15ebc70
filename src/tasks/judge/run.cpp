// A prompt's verdict is a row of logits: after the prompt itself, or after the reply that the judge wrote. Prompts share the pages
// of their common beginning, and a row after a reply the pages of the reply's prompt.
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

// A prompt on its way to a verdict: a written reply (`method: decode`), the row of the verdict, the row after a "1" that may be
// a 10. Prefill starts at kVerdict.
struct Prompt {
  enum class Stage { kReply, kVerdict, kTen, kDone };
  Stage stage = Stage::kVerdict;
  std::vector<TokenId> context;  // what the next request begins with
  std::vector<TokenId> reply;
  std::vector<double> logprobs;
  bool truncated = false;
  Verdict verdict;
};

// The columns of a unit's samples. combined: by text.
std::vector<ColumnBytes> judge_rows(const JudgeRun& run, const Unit& unit, const std::vector<Prompt>& prompts,
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
    reply.resize(run.config.max_new_tokens, -1);
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
  if (run.config.max_new_tokens > 0) rows.push_back({"/judge/reply_id", std::move(replies), true});
  return rows;
}

constexpr const char* kCue = "Verdict:";

class JudgeShard final : public GeneratorShard {
 public:
  JudgeShard(const JudgeRun& run, std::unique_ptr<ProcessGroup> group, ShardPlace place)
      : GeneratorShard(run.base, std::move(group), place), run_(run), verdict_ids_(run.tokens.all()) {
    if (run_.tokens.zero) zero_ = {*run_.tokens.zero};
    const GeneratorLimits limits{static_cast<std::int64_t>(run_.config.max_sequences),
                                 static_cast<std::int64_t>(run_.config.token_budget), run_.num_pages,
                                 run_.config.share_prefixes};
    SamplingParams greedy;
    greedy.temperature = 0;
    // More prompts than one pass takes.
    start(
        limits, greedy, 0, [this](auto, auto, const auto& reply) { return ends(reply); },
        2 * run_.config.max_sequences);
  }

 private:
  struct Open {
    Unit unit;
    std::vector<Prompt> prompts;
    std::uint64_t missing = 0;
  };
  using Stage = Prompt::Stage;

  bool ends_text(TokenId id) const { return std::binary_search(run_.ends.begin(), run_.ends.end(), id); }
  // A reply ends with the model's end token, or where its verdict is to be scored.
  bool ends(const std::vector<TokenId>& reply) const {
    if (ends_text(reply.back())) return true;
    if (run_.config.read != JudgeRead::kScore) return false;
    constexpr std::size_t kTail = 12;  // tokens; the cue has at most one a byte, and the last of them is new
    const std::size_t begin = reply.size() > kTail ? reply.size() - kTail : 0;
    return run_.tokenizer.decode(std::span(reply).subspan(begin)).find(kCue) != std::string::npos;
  }

  std::uint64_t begin_unit(const Unit& unit) override {
    std::vector<std::vector<TokenId>> prompts = sample_tokens(base_.file, unit);
    Open& open = open_[unit.index] = {unit, std::vector<Prompt>(unit.samples.size()), unit.samples.size()};
    for (std::size_t i = 0; i < unit.samples.size(); ++i) {
      open.prompts[i].context = std::move(prompts[i]);
      open.prompts[i].stage = run_.config.method == JudgeMethod::kDecode ? Stage::kReply : Stage::kVerdict;
      ask(unit.index, i, open.prompts[i]);
    }
    return unit.samples.size();
  }

  void ask(std::uint64_t unit, std::size_t sample, const Prompt& prompt) {
    GenerationRequest request{unit, sample, prompt.context};
    if (prompt.stage == Stage::kReply) {
      request.max_new_tokens = static_cast<std::int64_t>(run_.config.max_new_tokens);
    } else {
      request.wanted = prompt.stage == Stage::kTen ? std::span(zero_) : std::span(verdict_ids_);
    }
    generator_->add(std::move(request));
  }

  // From what the model gave to the next stage.
  void go_on(Prompt& prompt, const Generation& done) {
    switch (prompt.stage) {
      case Stage::kReply:
        return take_reply(prompt, done);
      case Stage::kVerdict: {
        prompt.logprobs = class_logprobs(done.wanted_logits, done.logsumexp, run_.tokens);
        prompt.stage = Stage::kDone;
        if (!run_.tokens.zero) return;
        const std::vector<TokenId>& ones = run_.tokens.first.front();  // the first of all wanted tokens
        const auto begin = done.wanted_logits.begin(), end = begin + static_cast<std::ptrdiff_t>(ones.size());
        prompt.context.push_back(ones[static_cast<std::size_t>(std::max_element(begin, end) - begin)]);
        prompt.stage = Stage::kTen;
        return;
      }
      case Stage::kTen:
        split_ten(prompt.logprobs, static_cast<double>(done.wanted_logits.front()) - done.logsumexp);
        prompt.stage = Stage::kDone;
        return;
      case Stage::kDone:
        return;
    }
  }

  void take_reply(Prompt& prompt, const Generation& done) {
    prompt.reply = done.tokens;
    std::vector<TokenId> words = done.tokens;
    if (!words.empty() && ends_text(words.back())) words.pop_back();
    const std::string text = run_.tokenizer.decode(words);
    prompt.truncated = done.finish_reason == FinishReason::kLength;
    if (run_.config.read != JudgeRead::kScore) {
      const bool word = run_.config.read == JudgeRead::kWord;
      prompt.verdict = verdict_from_text(word ? first_word(text, run_.classes) : any_substring(text, run_.classes),
                                         run_.classes.size());
      prompt.stage = Stage::kDone;
      return;
    }
    prompt.context.insert(prompt.context.end(), words.begin(), words.end());
    if (text.find(kCue) == std::string::npos) {
      const std::vector<TokenId> cue = run_.tokenizer.encode(
          std::string("\n") + kCue, {.add_special_tokens = false, .special_tokens_in_text = false});
      prompt.context.insert(prompt.context.end(), cue.begin(), cue.end());
    } else {
      prompt.truncated = false;
    }
    prompt.stage = Stage::kVerdict;
  }

  void finish(Prompt& prompt) const {
    if (!prompt.logprobs.empty()) prompt.verdict = verdict_from(prompt.logprobs, run_.config.low_mass);
    // A verdict that stands in a reply counts, however the reply ends; one that was forced upon a cut reply is told apart.
    const bool forced = run_.config.read == JudgeRead::kScore || prompt.verdict.verdict < 0;
    if (prompt.truncated && forced) prompt.verdict.parse = ParseClass::kTruncated;
    prompt.context.clear();
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
    Prompt& prompt = open.prompts[answer.sample];
    go_on(prompt, answer);
    if (prompt.stage != Stage::kDone) {
      ask(answer.record, answer.sample, prompt);
      return 0;
    }
    finish(prompt);
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
  std::vector<TokenId> verdict_ids_, zero_;  // what is wanted of a row; kept by reference by requests
  std::map<std::uint64_t, Open> open_;       // in-flight units
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
           "number of the most probable verdict; names: root attribute verdicts", "", Extent::kSamples},
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
           "truncated, its reply was cut off",
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
    JudgeShard(run, std::move(group), place).run_units();
  });
}

}  // namespace magister
