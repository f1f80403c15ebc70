// See rewards.h.
#include "tasks/train/rewards.h"

#include "magister/core/error.h"
#include "magister/parallel/gathered.h"
#include "magister/run/chat_prompts.h"
#include "magister/train/gradient_tree.h"

namespace magister {

std::string prompt_text(const Record& record, const DatasetConfig& dataset) {
  if (!dataset.whole_record) return record.text;
  const nlohmann::ordered_json value = record_field(record.text, dataset.text_field, record.where);
  MAGISTER_CHECK(value.is_string(), ExitCode::kData,
                 "{}: \"{}\" is no text (the model writes on after one); fix this record", record.where,
                 printable(dataset.text_field));
  return value.get<std::string>();
}

RewardFunction::RewardFunction(const RewardConfig& config, const DatasetConfig& dataset) : config_(config) {
  if (!config.model.empty()) {
    model_ = std::make_unique<RewardModel>(config.model, dataset);
    return;
  }
  VerifierOptions options;
  options.kind = config.verifier == "math"    ? VerifierKind::kMath
                 : config.verifier == "regex" ? VerifierKind::kRegex
                                              : VerifierKind::kExact;
  options.pattern = config.pattern;
  options.where = config.pattern_place;
  verifier_.emplace(options);
  MAGISTER_CHECK(config.verifier != "regex" || verifier_->extracts() == config.has_answers(), ExitCode::kConfig,
                 "{} {} (a group is compared with the record's answer, and without one any match is right); {}",
                 config.pattern_place,
                 config.has_answers() ? "has no group, and grpo.reward.answer names a field"
                                      : "has a group, and nothing to compare it with",
                 config.has_answers() ? "put what is to equal the answer into (...), or remove grpo.reward.answer"
                                      : "name the field of the answers with grpo.reward.answer, or write (?:...)");
}

std::string RewardFunction::needed(const Record& record) const {
  if (model_) return model_->prompt_of(record);
  if (!config_.has_answers()) return "";
  const nlohmann::ordered_json value = record_field(record.text, config_.answer_field, record.where);
  MAGISTER_CHECK(value.is_string() || value.is_number(), ExitCode::kData,
                 "{}: \"{}\" is {} (an answer to compare with is a text or a number); fix this record", record.where,
                 printable(config_.answer_field), printable(value.dump(), 60));
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  MAGISTER_CHECK(!text.empty(), ExitCode::kData,
                 "{}: \"{}\" is empty (no text of the model could be right); fix or remove this record", record.where,
                 printable(config_.answer_field));
  return text;
}

void RewardFunction::read_records(const Communicator& world, const Dataset& records) {
  if (!config_.has_answers() && !model_) return;
  const IndexRange all = records.records(), own = micro_batches_of(all.size(), world.rank(), world.size());
  std::vector<std::uint64_t> lengths;
  std::vector<char> bytes;
  records.for_each({all.begin + own.begin, all.begin + own.end}, [&](Record&& record) {
    const std::string text = needed(record);
    lengths.push_back(text.size());
    bytes.insert(bytes.end(), text.begin(), text.end());
  });
  const std::vector<char> all_bytes = gathered(world, bytes);
  needed_.clear();
  auto at = all_bytes.begin();
  for (const std::uint64_t length : gathered(world, lengths)) {
    needed_.emplace_back(at, at + static_cast<std::ptrdiff_t>(length));
    at += static_cast<std::ptrdiff_t>(length);
  }
}

std::vector<double> RewardFunction::rewards(const std::vector<RolloutText>& texts, const Tokenizer& tokenizer,
                                            int num_threads) {
  std::vector<double> rewards;
  for (const RolloutText& text : texts) {
    const std::string written = tokenizer.decode(text.tokens, true);
    const std::string needed = needed_.empty() ? "" : needed_.at(text.prompt);
    rewards.push_back(model_ ? model_->reward(needed, written, text.where, num_threads)
                             : verifier_->score(written, needed));
  }
  return rewards;
}

}  // namespace magister
