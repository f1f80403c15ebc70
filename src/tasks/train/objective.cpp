// Defaults of Objective and OpenObjective; see objective.h and open_objective.h.
#include "tasks/train/objective.h"

#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/units_of_measure.h"
#include "magister/parallel/gathered.h"
#include "magister/run/earlier_tasks.h"
#include "magister/runtime/end_tokens.h"
#include "magister/train/gradient_tree.h"
#include "tasks/train/open_objective.h"

namespace magister {

void fit_max_length(TrainConfig& config, const Positions& own, const PositionsOf&, Notes& notes) {
  fit_length(config.length, own.whole, notes);
  config.batches.max_length = config.length.tokens();
}

// An estimate: a sequence has the average length, and a pair is two sequences.
ModelWork work_of_sequences(const TrainConfig& config, double samples, double tokens) {
  const BatchOptions& batches = config.batches;
  const double length = samples > 0 ? tokens / samples : 0;
  if (batches.steps == 0) return {0, 0, batches.epochs * tokens};
  const double sequences = static_cast<double>(batches.global_batch * config.samples_an_item());
  return {0, 0,
          static_cast<double>(batches.steps) *
              (batches.batch_tokens > 0 ? static_cast<double>(batches.batch_tokens) : sequences * length)};
}

std::uint32_t learnt_tokens(const TrainConfig& config, std::uint64_t length, std::span<const std::uint8_t> assistant) {
  if (length == 0) return 0;
  const Objective& objective = config.objective();
  if (objective.marks(config) == nullptr)
    return static_cast<std::uint32_t>(objective.first_token_counts ? length : length - 1);
  std::uint32_t learnt = 0;
  for (std::size_t t = 1; t < assistant.size(); ++t) learnt += assistant[t] != 0 ? 1 : 0;
  return learnt;
}

Attributes OpenObjective::identity() { return {{"objective", std::string(config_.objective().name)}}; }

namespace {

// " in a.jsonl and 2 more files": the files of the records; empty if an objective learns from results.
std::string in_files(const DatasetConfig& dataset) {
  if (dataset.paths.empty()) return "";
  const std::string first = " in " + printable(dataset.paths.front(), 4096);
  const std::size_t more = dataset.paths.size() - 1;
  return more == 0 ? first : fmt::format("{} and {}", first, format_count(more, "more file"));
}

}  // namespace

void OpenObjective::check_learns(std::uint64_t num_learnt, std::uint64_t num_items, std::uint64_t) const {
  if (num_learnt > 0) return;
  const std::string files = in_files(config_.dataset);
  if (config_.of_pairs()) {
    fail(ExitCode::kData,
         "{}: none of the {} pairs has tokens of both answers to learn from{} (with max_length {} prompts fill "
         "it, or answers do not fit); raise train.max_length, or check the data set",
         config_.name, num_items, files, config_.batches.max_length);
  }
  fail(ExitCode::kData,
       "{}: none of the {} records has a token to learn from{} (one that follows another{}); look at the data set{}",
       config_.name, num_items, files, config_.assistant_only ? " and is the assistant's" : "",
       config_.assistant_only
           ? ", train.max_length, which may cut the answers off, and whether the chat template writes "
             "answers as the model would (one with generation blocks, by model.chat_template, marks "
             "them itself)"
           : "");
}

bool OpenObjective::find_held_out(DatasetConfig& dataset) { return !available_data(dataset, context_).is_placeholder; }

HeldOutSource OpenObjective::held_out(const Dataset&, const DatasetConfig&) {
  fail(ExitCode::kInternal, "{}: objective {} has no held-out records (its keys refuse them); report this",
       config_.name, config_.objective().name);
}

std::optional<StepBatches> OpenObjective::batches(const StepInputs& inputs, std::uint64_t,
                                                  std::vector<Samples> planned) {
  StepBatches batches{std::move(planned), {}};
  const IndexRange own = micro_batches_of(batches.items.size(), inputs.world.rank(), inputs.world.size());
  for (std::uint64_t i = own.begin; i < own.end; ++i)
    batches.own.push_back(micro_batch(inputs.samples, batches.items[i]));
  return batches;
}

std::vector<float> OpenObjective::curve(const StepResult& result) const {
  const auto numbers = config_.objective().curves(config_).numbers;
  return numbers != nullptr ? numbers(result) : std::vector<float>();
}

std::vector<std::string> OpenObjective::describe(const StepResult& result, nlohmann::ordered_json&) const {
  const auto describe = config_.objective().curves(config_).describe;
  return describe != nullptr ? std::vector{describe(result)} : std::vector<std::string>();
}

std::vector<double> OpenObjective::numbers_of_records(
    const std::function<std::vector<double>(const Record&)>& numbers) const {
  const IndexRange all = dataset_.records();
  const IndexRange own = micro_batches_of(all.size(), context_.world.rank(), context_.world.size());
  std::vector<double> own_numbers;
  dataset_.for_each({all.begin + own.begin, all.begin + own.end}, [&](Record&& record) {
    const std::vector<double> some = numbers(record);
    own_numbers.insert(own_numbers.end(), some.begin(), some.end());
  });
  return gathered(context_.world, own_numbers);
}

TokenId reward_pad_token(Checkpoint& checkpoint, const TrainConfig& config) {
  if (!config.of_head()) return -1;
  const std::int64_t own = checkpoint.config().pad_token_id;
  const TokenId end = text_end_token(checkpoint);
  return own >= 0 ? static_cast<TokenId>(own) : end;
}

std::string rollout_folder(const RunContext& context) {
  return std::filesystem::path(context.results_path).replace_extension().string() + ".rollouts";
}

}  // namespace magister
