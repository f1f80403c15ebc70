// See reward_model.h.
#include "magister/tasks/score/reward_model.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/io/dataset/record_json.h"
#include "magister/runtime/length_key.h"
#include "magister/tasks/score/classifier_logits.h"

namespace magister {
namespace {

constexpr const char* kMessages = "messages";
constexpr const char* kTools = "tools";
constexpr std::uint64_t kPassTokens = 2048;  // tokens of a pass, unless one text has more

ModelSection in_f32(ModelSection model) {
  model.dtype = "f32";
  return model;
}

ChatPrompts::Chat stored_chat(const std::string& text) {
  const auto both = parse_record(text);
  return {both[kMessages], both[kTools]};
}

}  // namespace

std::string RewardModel::prompt_of(const Record& record) const {
  if (!chat_) return prompt_text(record, dataset_);
  const ChatPrompts::Chat chat = ChatPrompts::chat_of(record, dataset_);
  return record_text({{kMessages, chat.messages}, {kTools, chat.tools}});
}

RewardModel::RewardModel(const ModelSection& section, const RewardedTexts& texts, const RunContext& context,
                         const std::optional<gpu::Queue>& gpu)
    : dataset_(texts.dataset),
      writer_tokenizer_(texts.tokenizer),
      max_length_(texts.max_length),
      model_(in_f32(section), context, {"reward_", "reward model"}) {
  const ModelConfig& model = model_.config();
  // The model needs no KV cache, so the other GPUs of the rank are not needed.
  model_.open(context.world, missing_on_gpus(model).empty() ? gpu : std::nullopt);
  MAGISTER_CHECK(model.labels.size() == 1, ExitCode::kConfig,
                 "{}: {} has {} labels (a reward is one number); name a reward model "
                 "(...ForSequenceClassification with one label)",
                 section.place, model_.path(), model.labels.size());
  const std::uint64_t positions = positions_of(model).whole;
  MAGISTER_CHECK(
      positions == 0 || texts.max_length <= positions, ExitCode::kConfig,
      "{}: a prompt and its text may have {} tokens, but the reward model {} was made for {} positions (nothing "
      "says what longer texts are worth); lower it, leave it to the models with auto, or name another reward "
      "model",
      texts.length_place, texts.max_length, model_.path(), positions);
  tokenizer_ = &model_.checkpoint().tokenizer();
  if (!dataset_.messages_field.empty()) chat_.emplace(model_.checkpoint(), dataset_);
}

MemoryParts RewardModel::memory(int tp_size) const {
  if (!is_on_gpus()) return {{"reward model", 4 * model_.config().num_parameters()}};
  return model_.memory(model_.config().encoder ? 1 : tp_size, {.tokens = std::max(kPassTokens, max_length_)}, 0);
}

SecondModel reward_model_of(const ModelSection& model, std::uint64_t max_length) {
  return {.name = "reward model",
          .section = in_f32(model),
          .pass = {.tokens = std::max(kPassTokens, max_length)},
          .may_stand_on_cpus = true};
}

std::vector<TokenId> RewardModel::tokens(const std::string& prompt, const WrittenText& text,
                                         const std::string& where) const {
  std::vector<TokenId> ids;
  if (chat_) {
    ids = chat_->encode_answered(stored_chat(prompt), text.text, "a text of the model");
  } else {
    ids = encode_written(*tokenizer_, prompt, text, writer_tokenizer_);
  }
  MAGISTER_CHECK(!ids.empty(), ExitCode::kData,
                 "{}: a text and its prompt have no token of the reward model {} (nothing says what it is worth); look "
                 "at its tokenizer",
                 where, model_.path());
  cut(ids, where);
  return ids;
}

// The head reads the first or the last token, and the text to judge is at the end. So the tokens after the first one
// are removed until the rest fits the positions of the model. This happens only if this tokenizer makes more tokens
// than that of the policy, which max_length limits.
void RewardModel::cut(std::vector<TokenId>& ids, const std::string& where) const {
  const std::int64_t most = model_.config().max_position_embeddings;
  const auto size = static_cast<std::int64_t>(ids.size());
  if (most <= 0 || size <= most) return;
  ids.erase(ids.begin() + 1, ids.begin() + 1 + (size - most));
  if (has_cut_.exchange(true)) return;
  log_warning(
      "{}: a text and its prompt have {} tokens of the reward model {}, which was made for {} (tokens after the "
      "first one are left out, and no warning follows for other texts); write shorter texts to reward whole ones",
      where, size, model_.path(), most);
}

Rewarder::Rewarder(const RewardModel& model, ProcessGroup& group, ThreadPool& pool, const LoadHook& hook)
    : source_(model),
      alone_(model.model_.config().encoder ? make_single_process_group(group.device()) : nullptr),
      model_(model.model_.load(alone_ ? *alone_ : group, pool, hook)),
      passes_(model_, [] { return fail_point("score.pass.memory"); }, 0) {
  passes_.limit(static_cast<std::int64_t>(kPassTokens));
}

// Texts of one prompt share its tokens. The bits of a row do not depend on the other rows of the pass.
std::vector<double> Rewarder::rewards(const std::string& prompt, const std::vector<WrittenText>& texts,
                                      const std::string& where, const std::function<void()>& heartbeat) {
  const c10::InferenceMode no_gradients;
  std::vector<std::vector<TokenId>> sequences;
  std::vector<std::int64_t> lengths;
  for (const WrittenText& text : texts) {
    sequences.push_back(source_.tokens(prompt, text, where));
    lengths.push_back(static_cast<std::int64_t>(sequences.back().size()));
  }
  std::vector<double> rewards;
  passes_.run(lengths, [&](IndexRange range) {
    if (heartbeat) heartbeat();
    const auto at = [&](std::uint64_t i) { return sequences.begin() + static_cast<std::ptrdiff_t>(i); };
    const at::Tensor logits_S1 = classifier_logits(model_, {at(range.begin), at(range.end)}, true);
    for (std::int64_t s = 0; s < logits_S1.size(0); ++s) rewards.push_back(logits_S1[s][0].item<double>());
    return true;
  });
  for (const double reward : rewards) {
    MAGISTER_CHECK(std::isfinite(reward), ExitCode::kData,
                   "{}: the reward model's number for a text is {} (no advantage can be computed from it); look at the "
                   "weights of {}",
                   where, reward, source_.model_.path());
  }
  return rewards;
}

}  // namespace magister
