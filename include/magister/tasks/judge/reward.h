// A judge's grade of texts that a policy has written, as a reward: prompts, spellings of verdicts and the way to a verdict are those of task `judge`.
// The judge stands beside the policy, on the CPU of every rank that asks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/engine/generator.h"
#include "magister/experiment/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/run_context.h"
#include "magister/run/side_model.h"
#include "magister/runtime/model_host.h"
#include "magister/runtime/pass_shape.h"
#include "magister/runtime/stop.h"
#include "magister/tasks/judge/prompts.h"
#include "magister/tasks/judge/reader.h"
#include "magister/tasks/judge/rules.h"

namespace magister {

struct JudgeRewardConfig : JudgeRules {
  ModelSection model;
};

// The section `judge` of a reward. task: its name, for messages.
JudgeRewardConfig read_judge_reward(ConfigNode& section, const ExperimentConfig& experiment);

class JudgeReward {
 public:
  // Opens and checks the judge; config is kept by reference. Throws Error(kConfig) for a model, a prompt or verdicts that cannot be used. Collective
  // over the context's world.
  JudgeReward(const JudgeRewardConfig& config, const RunContext& context);

  // Its names begin with judge_.
  SideModel& side() { return model_; }
  // What side() has, and prompt_sha256 with the verdicts' tokens before it. Collective over world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  // Memory of a rank, itemised.
  MemoryParts memory() const;
  // Every name that a prompt reads is a field of the records, as JudgePrompts::check_fields().
  void check_fields(const Dataset& dataset) const { prompts_.check_fields(dataset, true); }
  // What grades() needs of a record whose text is its JSON line. Throws Error(kData) with its place for fields that are missing or empty.
  std::string needed(const Record& record) const;
  // Of each text, as the field `answer`: the expected score of a rubric, else the probability of the mode's first verdict among all of them; the mean
  // over several prompts. A reply without a verdict has the worst grade. needed: of the record; where: the record, for messages; the
  // judge is loaded with the first ones; heartbeat: called before every pass. Throws Error(kData) for a prompt that is too long. Local, one thread
  // at a time; a grade has the same bits whatever is graded with it. Once, when most of the first prompts leave their verdicts less than low_mass of
  // the probability, a warning says so: such a grade means little, and no summary counts it.
  std::vector<double> grades(const std::string& needed, const std::vector<std::string>& texts, const std::string& where,
                             int num_threads, const std::function<void()>& heartbeat);

 private:
  void watch_mass(const Verdict& verdict);
  void check_head() const;
  PassShape pass() const;
  std::int64_t num_pages() const;
  Generator& loaded(int num_threads, const std::function<void()>& heartbeat);
  std::vector<std::vector<TokenId>> prompts_of(const Record& record, const std::vector<std::string>& texts) const;
  std::vector<std::vector<TokenId>> prompts_of(const std::string& needed, const std::vector<std::string>& texts,
                                               const std::string& where) const;

  const JudgeRewardConfig& config_;
  SideModel model_;
  const Tokenizer& tokenizer_;
  const JudgePrompts prompts_;
  const std::vector<VerdictClass> classes_;
  const VerdictTokens tokens_;
  std::vector<TokenId> ends_;                // that end a reply, ascending
  std::shared_ptr<const ModelRules> rules_;  // of replies; null: none
  const VerdictReader reader_;
  std::optional<ModelHost> host_;                    // once it has been asked
  std::string where_;                                // of what is graded now, for messages
  std::uint64_t num_graded_ = 0, num_low_mass_ = 0;  // prompts
};

// The number of a verdict that is a reward; finite.
double grade_of(const Verdict& verdict, JudgeMode mode);

}  // namespace magister
