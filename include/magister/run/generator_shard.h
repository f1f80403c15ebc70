// The loop of tasks that use the generator. It claims units as long as there is room for their sequences, so the batch
// stays full across the borders of units. A unit is written when its last sequence is done, so units may be written in
// any order. If fewer units are left than all groups have room for, each group holds at most an equal share of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "magister/core/types.h"
#include "magister/engine/generator.h"
#include "magister/engine/guide.h"
#include "magister/model/transformer.h"
#include "magister/run/shard_model.h"
#include "magister/runtime/text_keys.h"

namespace magister {

// Refuses lengths beyond the model's positions, or beyond those of the frequencies that model.rope_length chooses.
// Where frequencies depend on a text's length they must have been fixed (Checkpoint::fix_rope). length_place: place of
// the key that gives max_prompt_length. Throws Error(kConfig).
void check_positions(const ModelConfig& model, const std::string& length_place, std::uint64_t max_prompt_length,
                     std::uint64_t max_new_tokens);

// Returns the number of pages of keys and values for max_sequences texts of longest_text tokens (prompts included),
// limited to the cache's budget, but always enough for one text. Local.
std::int64_t pages_of_texts(const OpenModel& model, int tp_size, const PassShape& pass, std::uint64_t longest_text,
                            std::uint64_t max_sequences);

// Returns the rules of a task whose samples are prompts: no prompt is cut, and each record is a unit, committed with
// its texts.
SampleRules prompt_rules(const TextLengths& lengths, std::int64_t vocab_size, const Tokenizer* tokenizer);

// How a shard guides its texts: the function that loads the value model, and the parameters.
struct ShardGuide {
  GuideParams params;
  std::int64_t pages = 0;  // of the value model's cache, on this rank
  std::function<Transformer(ProcessGroup& group, ThreadPool& pool, const LoadHook& hook)> load{};
};

// A second model of a shard with a generator of its own.
struct ShardSecond {
  const char* loads = "load the second model";  // the watchdog's phase
  GeneratorLimits limits;                       // num_pages: of this rank
  SamplingParams sampling;
  std::function<Transformer(ProcessGroup& group, ThreadPool& pool, const LoadHook& hook)> load{};
};

class GeneratorShard : public ShardModel {
 public:
  using ShardModel::ShardModel;

  // After a stop, the next run starts in-flight sequences again and draws the same tokens.
  void run_units() override;

 protected:
  // Must be called by the constructor of the task's worker. batch: its values must not be `auto`. room: the number of
  // in-flight sequences, at least that of one pass.
  void start(const BatchKeys& batch, const SamplingParams& sampling, std::uint64_t seed, Generator::Stop stop,
             std::uint64_t room, std::uint64_t top_logprobs = 0);

  // Loads the value model, which then guides all texts; with a multiplier of 0 nothing is loaded. Must be called before
  // the first unit. Collective over the group.
  void guide(const ShardGuide& guide);

  // Loads a second model, whose generator second_ then answers the requests that the task adds to it. Must be called
  // before the first unit. Collective over the group.
  void load_second(const ShardSecond& second);

  // Work of the task before its first unit, and when this shard has no unit left; it may add requests and call
  // run_passes(). before_units() returns false if the job was asked to stop. Collective over the group.
  virtual bool before_units() { return true; }
  virtual void after_units() {}
  // Computes passes until no request is left. False: the job was asked to stop. Collective over the group.
  bool run_passes();
  // Waits until all units of the job are committed; then the rows of all groups can be read. False: the job was asked
  // to stop. Collective over the group.
  bool wait_for_all_units();

  // The functions of the task. begin_unit() adds the unit's requests to the generator and returns their number. take()
  // handles an answer and returns how many requests are finished by it (0: it asked the model for more). before_pass()
  // sets the watchdog's phase and the fail point.
  virtual std::uint64_t begin_unit(const Unit& unit) = 0;
  virtual std::uint64_t take(Generation&& answer) = 0;
  virtual void before_pass() = 0;
  // Returns the sample of the results file that a request belongs to, for messages.
  virtual std::uint64_t sample_of(std::uint64_t record, std::uint64_t sample) const = 0;
  // The record of a unit that has one record: its number in the data set, and its token ids.
  struct RecordPrompt {
    std::uint64_t record = 0;
    std::vector<TokenId> tokens;
  };
  RecordPrompt prompt_of(const Unit& unit) const;
  // Passes the unit to the writer. Only on the group's leader.
  void submit(const Unit& unit, std::vector<ColumnBytes> columns);

 private:
  std::optional<Transformer> value_;         // guides the texts; outlives the generator
  std::optional<Transformer> second_model_;  // outlives its generator

 protected:
  std::optional<Generator> generator_;
  std::optional<Generator> second_;

 private:
  void refuse_not_finite_rows(Generator& generator, Transformer& model);
  bool run_passes(const std::function<bool()>& fill);
  bool idle() const { return generator_->idle() && (!second_ || second_->idle()); }
  void take_finished_of(Generator& generator);
  bool fill();
  void report_written(bool last);

  std::uint64_t room_ = 0;
  std::uint64_t under_way_ = 0;   // sequences
  std::uint64_t units_held_ = 0;  // on the leader: claimed but not submitted yet
  bool holds_its_share_ = false;  // no further claims until one of its texts is done
  bool exhausted_ = false;        // no unit is left to claim
  InFlight in_flight_;
  std::uint64_t reported_written_ = 0;  // tokens
  std::chrono::steady_clock::time_point next_report_{};
};

}  // namespace magister
