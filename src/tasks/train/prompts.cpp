// See prompts.h.
#include "tasks/train/prompts.h"

#include "magister/core/error.h"
#include "magister/run/generator_shard.h"
#include "magister/runtime/end_tokens.h"

namespace magister {
PromptEncoder::PromptEncoder(Checkpoint& checkpoint, const TrainConfig& config, const RunContext& context,
                             const Dataset& records)
    : checkpoint_(checkpoint), config_(config), reward_(config, checkpoint.tokenizer_identity(), context) {
  ends_ = policy_end_tokens(checkpoint_);
  checkpoint_.rules();
  const ModelConfig& model = checkpoint_.config();
  check_positions(model, config_.length_place, config_.batches.max_length, 0);
  MAGISTER_CHECK(model.final_logit_softcapping == 0 || config_.grpo.sampling.temperature == 1, ExitCode::kConfig,
                 "{}: grpo.temperature is {}, and the model caps its logits (a temperature behind the cap is not "
                 "differentiated as yet); choose 1",
                 config_.name, config_.grpo.sampling.temperature);
  reward_.texts().check_fields(records);
  if (config_.dataset.messages_field.empty()) return;
  chat_.emplace(checkpoint_, config_.dataset);
  warn_of_unended_turn(checkpoint_, config_.name, ends_);
}

std::vector<TokenId> PromptEncoder::encode(const Record& record) const {
  reward_.needed(record);
  if (chat_) return chat_->encode(ChatPrompts::chat_of(record, config_.dataset), true, record.where);
  std::vector<TokenId> ids;
  checkpoint_.tokenizer().encode(prompt_text(record, config_.dataset), EncodeOptions{}, ids);
  return ids;
}

TextRules PromptEncoder::text_rules(const Communicator& world, const Dataset& records, const std::string& log_folder) {
  reward_.read_records(world, records);
  TextRules rules;
  rules.tokenizer = &checkpoint_.tokenizer();
  rules.end_tokens = ends_;
  rules.rules = checkpoint_.rules();
  rules.rewards = [this](std::span<const RolloutText> texts, int num_threads, const std::function<void()>& heartbeat) {
    return reward_.rewards(texts, num_threads, heartbeat);
  };
  if (config_.grpo.log_completions) rules.log_folder = log_folder;
  return rules;
}

}  // namespace magister
