// See validator.h.
#include "tasks/exam/validator.h"

#include <fmt/format.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/model/kv_pages.h"
#include "magister/model/partition.h"

namespace magister {
namespace {

// A check reads a prompt and the row after it, so only prompts are kept.
PassShape checking_pass(std::uint64_t longest, const PassLimits& limits) {
  return {.tokens = limits.tokens, .sequence_tokens = longest, .sampled_rows = limits.sequences};
}

std::uint64_t pages_of(std::uint64_t tokens) { return (tokens + KvPages::kSlots - 1) / KvPages::kSlots + 1; }

}  // namespace

std::vector<SecondModel> validator_models(const ExamConfig& config, const PassLimits& device) {
  if (!config.validator) return {};
  const std::uint64_t longest = config.max_prompt_length.tokens();
  return {{.name = "validator",
           .section = *config.validator,
           .pass = checking_pass(longest, config.limits(device)),
           .pages = pages_of(longest) + 1}};
}

ExamValidator::ExamValidator(const ExamConfig& config, const TaskInputs& inputs, const PassShape& own)
    : section_(*config.validator),
      batch_(config),
      longest_(config.max_prompt_length.tokens()),
      length_place_(config.length_place),
      pass_(checking_pass(longest_, config.limits({}))),
      tp_size_(inputs.tp_size),
      model_(section_, inputs.context, {"validator_", "validator"}) {
  model_.checkpoint().fix_rope(longest_);
  check(inputs);
  model_.open(inputs.context.world, inputs.model.gpu, inputs.model.gpus);
  model_.model().shards_on_host = inputs.model.shards_on_host;
  model_.model().kept.store = inputs.model.kept.store;
  divide_cache(inputs.model, own);
}

void ExamValidator::check(const TaskInputs& inputs) {
  const ModelConfig& config = model_.config();
  MAGISTER_CHECK(!config.is_classifier() && !config.encoder, ExitCode::kConfig,
                 "{}: {} is no language model (the answer to a check is read from a distribution over a vocabulary); "
                 "name one, or leave it out, and the model that writes the items answers",
                 section_.place, model_.path());
  MAGISTER_CHECK(section_.quantization_loss == 0, ExitCode::kConfig,
                 "{}.quantization_loss is {} (it is measured on a task's own records); remove it, and run `task: "
                 "judge` with this model and the key",
                 section_.place, section_.quantization_loss);
  check_positions(config, length_place_, longest_, 0);
  for (int shard = 0; shard < inputs.tp_size; ++shard)
    partition_for(config, shard, inputs.tp_size);  // throws if the model cannot be divided
}

// Divides the GPU memory that weights and passes of both models leave free between the two caches, in proportion to the
// bytes of the longest text in each. On CPUs each model has its own part of the host's memory.
void ExamValidator::divide_cache(const OpenModel& writer, const PassShape& own) {
  OpenModel& validator = model_.model();
  if (!validator.gpu) return;
  const std::uint64_t least = sum_of(validator.device_memory(tp_size_, pass_, 1));
  OpenModel sized = writer;
  sized.reserved_bytes = least;
  const auto left = static_cast<double>(sized.cache_budget_bytes(tp_size_, own));
  const auto checked_text = static_cast<double>(pages_of(longest_) * validator.page_bytes(tp_size_)),
             written_text = static_cast<double>(pages_of(own.sequence_tokens) * writer.page_bytes(tp_size_));
  const auto share = static_cast<std::uint64_t>(left * checked_text / (checked_text + written_text));
  gpu_bytes_ = least + share;
  validator.reserved_bytes = sum_of(writer.device_memory(tp_size_, own, 1)) + static_cast<std::uint64_t>(left) - share;
}

Attributes ExamValidator::identity(const Communicator& world, const StopPoll& poll) const {
  Attributes attributes = model_.identity(world, poll);
  if (const std::string products = model_.model().bf16_products(); !products.empty())
    attributes.emplace_back("validator_bf16_products", products);
  return attributes;
}

std::int64_t ExamValidator::num_pages() const {
  return pages_of_texts(model_.model(), tp_size_, pass_, longest_, batch_.max_sequences);
}

MemoryParts ExamValidator::memory() const {
  return model_.memory(tp_size_, pass_, static_cast<std::uint64_t>(num_pages()));
}

std::string ExamValidator::describe() const {
  return fmt::format("{}, {:.1f} M parameters, {}", model_.config().family,
                     static_cast<double>(model_.config().num_parameters()) * 1e-6, dtype_name(model_.model().dtype));
}

ShardSecond ExamValidator::shard_second() const {
  SamplingParams greedy;  // a row is no draw
  greedy.temperature = 0;
  return {.loads = "load the validator",
          .limits = {.max_sequences = static_cast<std::int64_t>(batch_.max_sequences),
                     .token_budget = static_cast<std::int64_t>(batch_.token_budget),
                     .num_pages = num_pages(),
                     .share_prefixes = batch_.share_prefixes},
          .sampling = greedy,
          .load = [this](ProcessGroup& group, ThreadPool& pool, const LoadHook& hook) {
            return model_.load(group, pool, hook);
          }};
}

}  // namespace magister
