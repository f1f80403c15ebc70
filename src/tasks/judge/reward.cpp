#include "magister/tasks/judge/reward.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/dataset/record_json.h"
#include "magister/run/generator_shard.h"
#include "magister/runtime/end_tokens.h"

namespace magister {
namespace {

// Sequences at once and tokens per pass; no grade depends on them.
constexpr std::uint64_t kGradedSequences = 8, kGradedTokens = 1024;

std::vector<TokenId> sorted(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

JudgeRewardConfig read_judge_reward(ConfigNode& section, const ExperimentConfig& experiment) {
  JudgeRewardConfig config;
  config.name = section.path();
  config.model = read_judge_model(section.section("model"), experiment);
  read_judge_mode(section, config, true);
  read_judge_prompts(section, config);
  read_judge_method(section, config);
  read_judge_fields(section, config);
  read_judge_classes(section, config);
  read_judge_length(section, config);
  // The limit cuts nothing: a prompt fits or ends the run, so a run can resume with a higher limit.
  section.outside_identity("max_prompt_length");
  section.also_called("prompt", {"system", "user", "prompt_template", "template"});
  section.also_called("max_prompt_length", {"max_model_len", "max_length", "max_input_length", "max_seq_length"});
  if (config.model.quantization_loss > 0) {
    section.reject(
        "model",
        "model.quantization_loss of a judge that rewards (it is measured on a task's own records); remove it, "
        "and run `task: judge` with it");
  }
  return config;
}

double grade_of(const Verdict& verdict, JudgeMode mode) {
  const bool rubric = mode == JudgeMode::kRubric, scored = !std::isnan(verdict.expected);
  if (rubric) return scored ? verdict.expected : std::max(verdict.verdict, 0) + 1;
  return scored ? 1 / (1 + std::exp(-static_cast<double>(verdict.log_odds))) : verdict.verdict == 0 ? 1 : 0;
}

JudgeReward::JudgeReward(const JudgeRewardConfig& config, const RunContext& context)
    : config_(config),
      model_(config.model, context, {"judge_", "judge"}),
      tokenizer_((model_.checkpoint().fix_rope(config.longest_text()), model_.open(context.world), check_head(),
                  model_.checkpoint().tokenizer())),
      prompts_(config_, model_.checkpoint()),
      classes_(prompts_.classes()),
      tokens_(verdict_tokens(tokenizer_, classes_)),
      ends_(config.max_new_tokens.tokens() > 0 ? sorted(model_.checkpoint().end_tokens()) : std::vector<TokenId>()),
      rules_(config.max_new_tokens.tokens() > 0 ? model_.checkpoint().rules() : nullptr),
      reader_({config_, classes_, tokens_, tokenizer_, ends_}) {
  check_positions(model_.config(), config_.length_place, config_.max_prompt_length.tokens(),
                  config_.max_new_tokens.tokens());
  if (config_.max_new_tokens.tokens() > 0 && config_.use_chat_template)
    warn_of_unended_turn(model_.checkpoint(), config_.name, ends_);
}

void JudgeReward::check_head() const {
  MAGISTER_CHECK(!model_.config().is_classifier() && !model_.config().encoder, ExitCode::kConfig,
                 "{}: {} is no language model (a judge's verdict is read from a distribution over a vocabulary); "
                 "name one, or a reward model as reward.model",
                 config_.model.place, model_.path());
}

Attributes JudgeReward::identity(const Communicator& world, const StopPoll& poll) const {
  Attributes attributes = {{"judge_prompt_sha256", prompts_.sha256()}};
  if (const std::string ids = tokens_.identity(); !ids.empty()) attributes.emplace_back("judge_verdict_token_ids", ids);
  for (auto& attribute : model_.identity(world, poll)) attributes.push_back(std::move(attribute));
  return attributes;
}

PassShape JudgeReward::pass() const {
  return {.tokens = kGradedTokens, .sequence_tokens = config_.longest_text(), .sampled_rows = kGradedSequences};
}

std::int64_t JudgeReward::num_pages() const {
  return pages_of_texts(model_.model(), 1, pass(), config_.longest_text(), kGradedSequences);
}

MemoryParts JudgeReward::memory() const { return model_.memory(1, pass(), static_cast<std::uint64_t>(num_pages())); }

std::string JudgeReward::needed(const Record& record) const {
  prompts_of(record, {"an answer"});
  return record.text;
}

std::vector<std::vector<TokenId>> JudgeReward::prompts_of(const std::string& needed,
                                                          const std::vector<std::string>& texts,
                                                          const std::string& where) const {
  Record record;
  record.fields = std::make_shared<const nlohmann::ordered_json>(parse_record(needed));
  record.where = where;
  return prompts_of(record, texts);
}

std::vector<std::vector<TokenId>> JudgeReward::prompts_of(const Record& record,
                                                          const std::vector<std::string>& texts) const {
  std::vector<std::vector<TokenId>> prompts = prompts_.encode(record, texts);
  for (const std::vector<TokenId>& prompt : prompts) {
    MAGISTER_CHECK(!prompt.empty() && prompt.size() <= config_.max_prompt_length.tokens(), ExitCode::kData,
                   "{}: the judge's prompt with a text has {} tokens, and {}.max_prompt_length is {} (a prompt is "
                   "never cut); raise it and run the same command again, or shorten the record",
                   record.where, prompt.size(), config_.name, config_.max_prompt_length.tokens());
  }
  return prompts;
}

Generator& JudgeReward::loaded(int num_threads, const std::function<void()>& heartbeat) {
  if (host_) return host_->generator();
  SamplingParams greedy;
  greedy.temperature = 0;
  greedy.rules = rules_;
  const GeneratorLimits limits{.max_sequences = static_cast<std::int64_t>(kGradedSequences),
                               .token_budget = static_cast<std::int64_t>(kGradedTokens),
                               .num_pages = num_pages()};
  host_.emplace(model_.model(), num_threads, heartbeat,
                GeneratorSetup{.limits = limits, .sampling = greedy, .stop = [this](auto, auto, const auto& reply) {
                                 return reader_.ends(reply);
                               }});
  host_->generator().on_not_finite([this](auto, auto, const auto&) {
    fail(ExitCode::kData,
         "{}: the judge's logits for a text are not finite (a grade from them would mean nothing); look at its "
         "weights and its dtype",
         where_);
  });
  return host_->generator();
}

std::vector<double> JudgeReward::grades(const std::string& needed, const std::vector<std::string>& texts,
                                        const std::string& where, int num_threads,
                                        const std::function<void()>& heartbeat) {
  const c10::InferenceMode no_gradients;
  Generator& judge = loaded(num_threads, heartbeat);
  where_ = where;
  std::vector<JudgedPrompt> prompts;
  for (std::vector<TokenId>& prompt : prompts_of(needed, texts, where)) {
    prompts.push_back(reader_.begin(std::move(prompt)));
    judge.add(reader_.request(0, prompts.size() - 1, prompts.back()));
  }
  while (!judge.idle()) {
    if (heartbeat) heartbeat();
    judge.step();
    for (const Generation& answer : judge.take_finished()) {
      JudgedPrompt& prompt = prompts[answer.sample];
      reader_.take(prompt, answer);
      if (!prompt.done()) judge.add(reader_.request(0, answer.sample, prompt));
    }
  }
  for (const JudgedPrompt& prompt : prompts) watch_mass(prompt.verdict);
  const std::size_t each = prompts_.group();
  std::vector<double> grades(texts.size(), 0.0);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    grades[i / each] += grade_of(prompts[i].verdict, config_.mode) / static_cast<double>(each);
  return grades;
}

void JudgeReward::watch_mass(const Verdict& verdict) {
  constexpr std::uint64_t kFirst = 16;
  ++num_graded_;
  num_low_mass_ += verdict.parse == ParseClass::kLowMass;
  if (num_graded_ != kFirst || 2 * num_low_mass_ <= kFirst) return;
  log_warning(
      "{}: {} of the judge's first {} prompts leave its verdicts together less than {} of the probability (it wants to "
      "write something else there, so its grades mean little); look at what it writes with `task: judge` and `method: "
      "decode`, at its chat template, and at how the prompt ends",
      config_.name, num_low_mass_, kFirst, config_.low_mass);
}

}  // namespace magister
