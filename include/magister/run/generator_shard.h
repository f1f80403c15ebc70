// The loop of tasks that work with the generator: units are claimed as long as there is room for their sequences, so the batch
// stays full over the borders of units, and a unit is written when its last sequence is done, in whatever order. Where fewer are left than
// all groups have room for, each holds its equal part at most.
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

// Refuses lengths that the model's positions do not hold, or that go beyond those up to which its rotary frequencies stay as they are
// (dynamic scaling, LongRoPE): keys in the cache cannot turn again. length_place: of the key that gives max_prompt_length. Throws Error(kConfig).
void check_positions(const ModelConfig& model, const std::string& length_place, std::uint64_t max_prompt_length,
                     std::uint64_t max_new_tokens);

// Pages of keys and values for max_sequences texts of longest_text tokens with their prompts, or as many as fit into the cache's budget, but
// always enough for one text. Local.
std::int64_t pages_of_texts(const OpenModel& model, int tp_size, const PassShape& pass, std::uint64_t longest_text,
                            std::uint64_t max_sequences);

// The rules of a task whose samples are prompts: none is cut, and a record is a unit, committed with its texts.
SampleRules prompt_rules(const TextLengths& lengths, std::int64_t vocab_size, const Tokenizer* tokenizer);

// How texts are guided: what a shard loads of the value model, and what it asks of it.
struct ShardGuide {
  GuideParams params;
  std::int64_t pages = 0;  // of the value model's cache on this rank
  std::function<Transformer(ProcessGroup& group, ThreadPool& pool, const LoadHook& hook)> load{};
};

class GeneratorShard : public ShardModel {
 public:
  using ShardModel::ShardModel;

  // In-flight sequences are begun again by the next run, to the same tokens.
  void run_units() override;

 protected:
  // To be called by the constructor of the task's worker. batch: without `auto`. room: in-flight sequences, at least
  // those of one pass.
  void start(const BatchKeys& batch, const SamplingParams& sampling, std::uint64_t seed, Generator::Stop stop,
             std::uint64_t room, std::uint64_t top_logprobs = 0);

  // Loads the value model, which guides the texts from now on; with a multiplier of 0 nothing is loaded. Before the first unit.
  // Collective over the group.
  void guide(const ShardGuide& guide);

  // The task's part. begin_unit adds the unit's requests to the generator and returns their number; take returns how many of them are
  // done for good with this answer (0: more was asked of the model). before_pass: watchdog's phase and fail point.
  virtual std::uint64_t begin_unit(const Unit& unit) = 0;
  virtual std::uint64_t take(Generation&& answer) = 0;
  virtual void before_pass() = 0;
  // The sample of the results file that a request belongs to, for messages.
  virtual std::uint64_t sample_of(std::uint64_t record, std::uint64_t sample) const = 0;
  // The record of a unit of one record: its number in the data set, and its ids.
  struct RecordPrompt {
    std::uint64_t record = 0;
    std::vector<TokenId> tokens;
  };
  RecordPrompt prompt_of(const Unit& unit) const;
  // On the leader: the unit goes to the file.
  void submit(const Unit& unit, std::vector<ColumnBytes> columns);

 private:
  std::optional<Transformer> value_;  // of the guide; outlives the generator

 protected:
  std::optional<Generator> generator_;

 private:
  bool fill();
  void report_written(bool last);

  std::uint64_t room_ = 0;
  std::uint64_t under_way_ = 0;   // sequences
  std::uint64_t units_held_ = 0;  // on the leader: claimed and not computed yet
  bool holds_its_share_ = false;  // until one of its texts is done
  bool exhausted_ = false;        // no unit is left to draw
  InFlight in_flight_;
  std::uint64_t reported_written_ = 0;  // tokens
  std::chrono::steady_clock::time_point next_report_{};
};

}  // namespace magister
