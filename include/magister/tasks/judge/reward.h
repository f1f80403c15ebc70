// A judge's grade of texts that a policy has written, as a reward. Prompts, spellings of verdicts and the reading of a
// verdict are those of task `judge`. In addition to the policy, every rank that needs grades holds the judge on its
// CPU.
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

// Reads the section `judge` of a reward.
JudgeRewardConfig read_judge_reward(ConfigNode& section, const ExperimentConfig& experiment);

class JudgeReward {
 public:
  // Opens and checks the judge; keeps a reference to config. Throws Error(kConfig) for a model, a prompt or verdicts
  // that cannot be used. Collective over the context's world.
  JudgeReward(const JudgeRewardConfig& config, const RunContext& context);

  // The judge's model; its names begin with judge_.
  SideModel& side() { return model_; }
  // judge_prompt_sha256, the verdicts' tokens if they must be stored, and the identity of side(). Collective over
  // world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  // Memory per rank, itemised.
  MemoryParts memory() const;
  // See JudgePrompts::check_fields().
  void check_fields(const Dataset& dataset) const { prompts_.check_fields(dataset, true); }
  // The part of a record that grades() needs; record.text must be its JSON line. Throws Error(kData) with the record's
  // place for fields that are missing or empty.
  std::string needed(const Record& record) const;
  // Grades each text, as the field `answer`. A grade is the expected score of a rubric, otherwise the probability of
  // the mode's first verdict among all verdicts; with several prompts it is their mean. A reply without a verdict has
  // the worst grade. needed: needed() of the record; where: the record, for messages. The first call loads the judge.
  // heartbeat is called before every pass. Warns once if most of the first prompts give their verdicts less than
  // low_mass of the probability: such grades mean little, and no summary counts them. A grade has the same bits
  // whatever is graded with it. Throws Error(kData) for a prompt that is too long. Local, one thread at a time.
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
  std::vector<TokenId> ends_;                // tokens that end a reply, ascending
  std::shared_ptr<const ModelRules> rules_;  // for replies; null: none
  const VerdictReader reader_;
  std::optional<ModelHost> host_;                    // set when the judge is loaded
  std::string where_;                                // the record that is graded now, for messages
  std::uint64_t num_graded_ = 0, num_low_mass_ = 0;  // prompts
};

// The value of a verdict that is used as the reward; finite.
double grade_of(const Verdict& verdict, JudgeMode mode);

}  // namespace magister
