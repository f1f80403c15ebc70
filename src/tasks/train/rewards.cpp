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

RewardFunction::RewardFunction(const TrainConfig& config, const RunContext& context) : config_(config.grpo.reward) {
  if (config_.model) {
    model_ = std::make_unique<RewardModel>(config, context);
  } else {
    verifier_.emplace(config_.rule.options);
  }
}

std::vector<std::string> RewardFunction::needed(const Record& record) const {
  if (model_) return {model_->prompt_of(record)};
  return right_answers(record, config_.rule.answer_field);
}

void RewardFunction::read_records(const Communicator& world, const Dataset& records) {
  if (!config_.has_answers() && !model_) return;
  const IndexRange all = records.records(), own = micro_batches_of(all.size(), world.rank(), world.size());
  std::vector<std::uint64_t> counts, lengths;
  std::vector<char> bytes;
  records.for_each({all.begin + own.begin, all.begin + own.end}, [&](Record&& record) {
    const std::vector<std::string> texts = needed(record);
    counts.push_back(texts.size());
    for (const std::string& text : texts) {
      lengths.push_back(text.size());
      bytes.insert(bytes.end(), text.begin(), text.end());
    }
  });
  const std::vector<char> all_bytes = gathered(world, bytes);
  const std::vector<std::uint64_t> all_lengths = gathered(world, lengths);
  needed_.clear();
  auto at = all_bytes.begin();
  auto length = all_lengths.begin();
  for (const std::uint64_t count : gathered(world, counts)) {
    std::vector<std::string>& texts = needed_.emplace_back();
    for (std::uint64_t i = 0; i < count; ++i, ++length) {
      const auto end = at + static_cast<std::ptrdiff_t>(*length);
      texts.emplace_back(at, end);
      at = end;
    }
  }
}

double RewardFunction::reward(const RolloutText& text, const Tokenizer& tokenizer, int num_threads) {
  const std::string written = tokenizer.decode(text.tokens, true);
  if (model_) return model_->reward(needed_.at(text.prompt).at(0), written, text.where, num_threads);
  return verified(*verifier_, written, needed_.empty() ? std::vector<std::string>() : needed_.at(text.prompt));
}

}  // namespace magister
