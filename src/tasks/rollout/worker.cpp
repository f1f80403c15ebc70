// A unit is one record. For the random numbers its roll-in is text 0, and continuation i of cut c is text 1 + c n + i.
// Each text's key has the record's number, so a text does not depend on the rank that writes it, or on what was written
// before a kill.
#include "tasks/rollout/worker.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/splitmix64.h"
#include "magister/run/not_finite.h"

namespace magister {
namespace {

// "cuts" and "pref": streams that differ from the stream of the tokens
constexpr std::uint64_t kCuts = 0x63757473, kPreferences = 0x70726566;

constexpr std::uint64_t kReadAtOnce = 512;  // records

std::uint64_t stream(std::uint64_t seed, std::uint64_t name) { return splitmix64(seed ^ name); }

class RolloutWorker final : public GeneratorShard {
 public:
  RolloutWorker(ShardContext shard, RolloutSetup& setup, const RolloutShape& shape)
      : GeneratorShard(std::move(shard)), setup_(setup), shape_(shape) {
    const RolloutConfig& config = setup_.config;
    // Claims enough records to fill a pass with their roll-ins; their continuations then fill the passes that follow.
    start(
        config, config.sampling, config.seed,
        [this](std::uint64_t record, std::uint64_t text, const std::vector<TokenId>& tokens) {
          const Record& of = records_.at(record);
          return ends_text(setup_.tokenizer, of.prompt, text == 0 ? tokens : whole_text(of.rollouts, text - 1, tokens),
                           setup_.stops);
        },
        config.max_sequences * config.texts());
    if (setup_.guide) guide(*setup_.guide);
    const RewardModel* const model = setup_.reward->model();
    if (model == nullptr || !model->is_on_gpus()) return;
    const PhaseTimes::Span span(times_, "load");
    rewarder_.emplace(*model, group_, pool_, [this] { watch("load the reward model"); });
  }

 private:
  struct Record {
    Unit unit;
    std::vector<TokenId> prompt;
    Rollouts rollouts;
    std::uint64_t missing = 0;
  };

  std::uint64_t begin_unit(const Unit& unit) override {
    auto [source, prompt] = prompt_of(unit);
    Record& record = records_[source];
    record.unit = unit;
    record.missing = setup_.config.texts();
    record.rollouts.continuations.resize(record.missing);
    GenerationRequest roll_in{source, 0, prompt, static_cast<std::int64_t>(setup_.config.max_new_tokens.tokens())};
    roll_in.greedy = setup_.config.roll_in_greedy;
    record.prompt = std::move(prompt);
    generator_->add(std::move(roll_in));
    return record.missing;
  }

  std::uint64_t take(Generation&& text) override {
    Record& record = records_.at(text.record);
    if (text.sample == 0) {
      record.rollouts.roll_in = std::move(text.tokens);
      continue_from_cuts(text.record, record);
      return 0;
    }
    Continuation& one = record.rollouts.continuations[text.sample - 1];
    one.tokens = std::move(text.tokens);
    one.finish_reason = static_cast<std::uint8_t>(text.finish_reason);
    if (--record.missing > 0) return 1;
    fail_point("rollout.record.done");
    if (writer_ || rewarder_) add_rewards(text.record, record);
    if (!rewarder_) wait_for_leader("wait for the leader's rewards");
    if (writer_) {
      add_preferences(text.record, record.rollouts);
      submit(record.unit, rollout_rows(record.rollouts, shape_));
    }
    records_.erase(text.record);
    return 1;
  }

  // The roll-in up to the cut and the continuation: a stop text may begin before the cut.
  std::vector<TokenId> whole_text(const Rollouts& all, std::uint64_t continuation,
                                  const std::vector<TokenId>& tokens) const {
    const std::uint32_t cut = all.cut[continuation / setup_.config.n];
    std::vector<TokenId> whole(all.roll_in.begin(), all.roll_in.begin() + static_cast<std::ptrdiff_t>(cut));
    whole.insert(whole.end(), tokens.begin(), tokens.end());
    return whole;
  }

  void continue_from_cuts(std::uint64_t source, Record& record) {
    const RolloutConfig& config = setup_.config;
    for (std::uint64_t c = 0; c < config.cuts; ++c) {
      const double u = keyed_uniform({stream(config.seed, kCuts), source, c, 0});
      const std::uint32_t cut = cut_of(u, config.first_cut, record.rollouts.roll_in.size());
      record.rollouts.cut.push_back(cut);
      GenerationRequest request{source, 1 + c * config.n, record.prompt,
                                static_cast<std::int64_t>(config.max_new_tokens.tokens() - cut)};
      const auto begin = record.rollouts.roll_in.begin();
      request.prompt.insert(request.prompt.end(), begin, begin + static_cast<std::ptrdiff_t>(cut));
      request.begun = cut;
      request.greedy = config.first_greedy;
      request.guided = config.continue_guided;
      generator_->add(std::move(request), config.n);
    }
  }

  // Reads a block of records at once: they are claimed nearly in the order of the data set, and a compressed file or a
  // mix is read from its beginning each time.
  const std::vector<std::string>& needed_of(std::uint64_t source) {
    if (source < needed_begin_ || source >= needed_begin_ + needed_.size()) {
      const IndexRange all = setup_.dataset.records();
      const std::lock_guard lock(setup_.reading);
      needed_begin_ = std::max(all.begin, source - source % kReadAtOnce);
      needed_.clear();
      setup_.dataset.for_each({needed_begin_, std::min(all.end, source - source % kReadAtOnce + kReadAtOnce)},
                              [&](auto&& read) { needed_.push_back(setup_.reward->needed(read)); });
    }
    return needed_.at(source - needed_begin_);
  }

  void add_rewards(std::uint64_t source, Record& record) {
    const PhaseTimes::Span span(times_, "reward");
    const std::vector<std::string> needed = needed_of(source);
    const std::string where = describe_record(base_.file, record.unit.samples.begin);
    Rollouts& all = record.rollouts;
    const auto heartbeat = [this] {
      watch("reward texts");
      fail_point("rollout.reward");
    };
    std::vector<WrittenText> texts;
    for (std::size_t i = 0; i < all.continuations.size(); ++i) {
      const std::vector<TokenId> whole = whole_text(all, i, all.continuations[i].tokens);
      texts.push_back({text_of(setup_.tokenizer, record.prompt, whole, setup_.stops), whole});
    }
    const TextRewards rewards = rewards_of(needed, texts, where, heartbeat);
    for (std::size_t i = 0; i < rewards.values.size(); ++i)
      all.continuations[i].reward = static_cast<float>(setup_.config.scale * rewards.values[i]);
    for (std::size_t i = 0; i < rewards.unread.size(); ++i) all.continuations[i].unread = rewards.unread[i];
  }

  // All shards of a group compute a reward model on GPUs together, each with its part, so none may wait for another at
  // a lock.
  TextRewards rewards_of(const std::vector<std::string>& needed, const std::vector<WrittenText>& texts,
                         const std::string& where, const std::function<void()>& heartbeat) {
    if (rewarder_) return {rewarder_->rewards(needed.at(0), texts, where, heartbeat), {}};
    wait_for_others("wait for another group's rewards");
    const std::lock_guard lock(base_.work.one_group);
    heartbeat();
    return setup_.reward->rewards(needed, texts, where, base_.group.threads_per_shard(), heartbeat);
  }

  // Draws the preference between 2i and 2i + 1 from their rewards (Bradley-Terry). Two equal texts are a fair coin
  // flip.
  void add_preferences(std::uint64_t source, Rollouts& all) const {
    const RolloutConfig& config = setup_.config;
    for (std::uint64_t text = 0; text < config.texts(); ++text) {
      if (text % config.n % 2 != 0 || text % config.n + 1 == config.n) continue;
      Continuation &a = all.continuations[text], &b = all.continuations[text + 1];
      const double wins = 1 / (1 + std::exp(-config.beta * (static_cast<double>(a.reward) - b.reward)));
      const bool first = keyed_uniform({stream(config.seed, kPreferences), source, text, 0}) < wins;
      a.preferred = first ? Preferred::kWon : Preferred::kLost;
      b.preferred = first ? Preferred::kLost : Preferred::kWon;
    }
  }

  std::uint64_t sample_of(std::uint64_t record, std::uint64_t) const override {
    return records_.at(record).unit.samples.begin;
  }

  void before_pass() override {
    watch("write texts");
    fail_point("rollout.pass");
  }

  RolloutSetup& setup_;
  const RolloutShape shape_;
  std::optional<Rewarder> rewarder_;              // for a reward model on GPUs
  std::map<std::uint64_t, Record> records_;       // in flight, by source index
  std::uint64_t needed_begin_ = 0;                // source index of the first entry of needed_
  std::vector<std::vector<std::string>> needed_;  // what rewards need, for a block of records
};

}  // namespace

std::uint32_t cut_of(double u, std::uint64_t first_cut, std::uint64_t tokens) {
  MAGISTER_CHECK(tokens > 0, ExitCode::kInternal, "a roll-in has no token (it has no place for a cut); report this");
  const std::uint64_t first = std::min(first_cut, tokens - 1);
  return static_cast<std::uint32_t>(first + static_cast<std::uint64_t>(u * static_cast<double>(tokens - first)));
}

std::unique_ptr<ShardWorker> make_rollout_worker(ShardContext shard, RolloutSetup& setup, const RolloutShape& shape) {
  return std::make_unique<RolloutWorker>(std::move(shard), setup, shape);
}

}  // namespace magister
