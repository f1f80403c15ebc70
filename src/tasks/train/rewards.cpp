// See rewards.h.
#include "tasks/train/rewards.h"

#include "magister/core/error.h"
#include "magister/parallel/gathered.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/train/gradient_tree.h"

namespace magister {

RewardFunction::RewardFunction(const TrainConfig& config, const TokenizerIdentity& tokenizer, const RunContext& context)
    : config_(config.grpo.reward),
      reward_(config_,
              {config.name, "grpo.reward", config.dataset, config.batches.max_length, config.length_place, tokenizer},
              context) {}

void RewardFunction::read_records(const Communicator& world, const Dataset& records) {
  if (!config_.reads_fields() && reward_.model() == nullptr) return;
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

TextRewards RewardFunction::rewards(std::span<const RolloutText> texts, int num_threads,
                                    const std::function<void()>& heartbeat) {
  std::vector<WrittenText> written;
  for (const RolloutText& text : texts) written.push_back({text.text, text.tokens});
  const RolloutText& first = texts.front();
  return reward_.rewards(needed_.empty() ? std::vector<std::string>() : needed_.at(first.prompt), written, first.where,
                         num_threads, heartbeat);
}

}  // namespace magister
