// Task teacher_logits: data set -> tokens -> units -> hidden states -> reduced logits -> rows of one results file.
// This file is the order of things; the plan, the columns and the compute loop have files of their own beside it.
#include <chrono>
#include <filesystem>

#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "magister/run/memory_plan.h"
#include "magister/run/model_source.h"
#include "magister/run/progress.h"
#include "magister/run/run_log.h"
#include "magister/run/task.h"
#include "magister/tasks/teacher_logits_config.h"
#include "magister/run/chat_prompts.h"
#include "magister/run/device_group.h"
#include "magister/run/model_hash.h"
#include "magister/run/open_model.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/sample_plan.h"
#include "tasks/teacher_columns.h"
#include "tasks/teacher_run.h"
#include "magister/run/unit_loop.h"

namespace magister {
namespace {

using Attributes = std::vector<std::pair<std::string, AttributeValue>>;

class TeacherLogits final : public Task {
 public:
  explicit TeacherLogits(TeacherLogitsConfig config) : Task("teacher_logits", config.name, config.model), config_(std::move(config)) {}

  PassShape pass_shape() const override {
    return {config_.unit_tokens, 0, config_.unit_tokens * (config_.top_k + 20) * 8 * 2};
  }
  PlanReport plan(RunContext& context, int num_ranks) override;
  ExitCode run(RunContext& context) override;

 private:
  SampleRules rules(const ModelConfig& model) const;
  std::unique_ptr<ChatPrompts> open_chat(const Tokenizer& tokenizer) const;
  SampleRules rules_with(const ModelConfig& model, const ChatPrompts* chat) const;
  TeacherShape shape(const SamplePlan& plan) const;
  Attributes identity(const RunContext& context, const OpenModel& model, const Tokenizer& tokenizer,
                      const Dataset& dataset, int tp_size) const;
  ResultsFile create(RunContext& context, const OpenModel& model, const Tokenizer& tokenizer, const Dataset& dataset,
                     const Attributes& identity, PhaseTimes& times) const;
  ExitCode compute(RunContext& context, const GpuGroup& group, const OpenModel& model, ResultsFile& file,
                   const std::optional<LossPlan>& loss, PhaseTimes& times) const;

  TeacherLogitsConfig config_;
};

SampleRules TeacherLogits::rules(const ModelConfig& model) const {
  MAGISTER_CHECK(config_.top_k <= static_cast<std::uint64_t>(model.vocab_size), ExitCode::kConfig,
                 "{} is {}, but the vocabulary has {} entries (no more can be kept); choose 1 to {}",
                 config_.top_k_place, config_.top_k, model.vocab_size, model.vocab_size);
  MAGISTER_CHECK(model.max_position_embeddings <= 0 ||
                     config_.max_length <= static_cast<std::uint64_t>(model.max_position_embeddings),
                 ExitCode::kConfig,
                 "{} is {}, but the model was made for {} positions (rows beyond them would be "
                 "meaningless); choose at most {}", config_.length_place, config_.max_length, model.max_position_embeddings,
                 model.max_position_embeddings);
  return {config_.max_length, config_.stride,    config_.overflow, config_.unit_tokens,
          model.vocab_size,   !config_.dataset.tokens_field.empty()};
}

TeacherShape TeacherLogits::shape(const SamplePlan& plan) const {
  return {plan.num_samples, plan.num_tokens,    plan.num_units,
          config_.top_k,    plan.max_key_bytes, config_.logprob_f16, config_.assistant_only};
}

// What must be equal for two runs to belong to one results file. Collective over the world.
Attributes TeacherLogits::identity(const RunContext& context, const OpenModel& model, const Tokenizer& tokenizer,
                                   const Dataset& dataset, int tp_size) const {
  const IndexRange slice = dataset.records();
  return {{"config_sha256", sha256_hex(context.config_yaml)},
          {"model_sha256", model_sha256(context.world, config_.model.path, *model.file)},
          {"tokenizer_sha256", tokenizer.sha256()},
          {"dataset_sha256", dataset.sha256()},
          {"dtype", dtype_name(model.dtype)},
          {"device", model.device_kind()},
          {"tp_size", static_cast<std::uint64_t>(tp_size)},
          {"source_records", dataset.num_source_records()},
          {"slice_begin", slice.begin},
          {"slice_end", slice.end}};
}

// Whole chats, by the model's template; empty where the records hold text or ids. The tokenizer is kept by reference.
std::unique_ptr<ChatPrompts> TeacherLogits::open_chat(const Tokenizer& tokenizer) const {
  if (config_.dataset.messages_field.empty()) return nullptr;
  return std::make_unique<ChatPrompts>(config_.model.path, config_.model.chat_template, tokenizer, config_.dataset.special_tokens_in_messages);
}

SampleRules TeacherLogits::rules_with(const ModelConfig& model, const ChatPrompts* chat) const {
  SampleRules all = rules(model);
  if (chat == nullptr) return all;
  all.marks_assistant = config_.assistant_only;
  all.encode = [this, chat](const Record& record) -> std::vector<SampleTokens> {
    const nlohmann::ordered_json messages = record_field(record.text, config_.dataset.messages_field, record.where);
    if (!config_.assistant_only) return {chat->encode(messages, false, record.where)};
    ChatPrompts::MarkedTokens marked = chat->encode_marked(messages, record.where);
    return {{std::move(marked.ids), std::move(marked.assistant)}};
  };
  return all;
}

ResultsFile TeacherLogits::create(RunContext& context, const OpenModel& model, const Tokenizer& tokenizer,
                                  const Dataset& dataset, const Attributes& identity, PhaseTimes& times) const {
  const std::string folder = std::filesystem::path(context.results_path).parent_path().string();
  const std::unique_ptr<ChatPrompts> chat = open_chat(tokenizer);
  const auto tokenized = [&] {
    const PhaseTimes::Span span(times, "tokenise");
    return SamplePlan::make(context.world, dataset, tokenizer, rules_with(model.description.config, chat.get()), folder);
  };
  SamplePlan plan = tokenized();
  const PhaseTimes::Span span(times, "create the file");
  if (plan.num_cut > 0) {
    log_info("{}: {} records are longer than max_length {} and were {}", name(), plan.num_cut, config_.max_length,
             config_.overflow == Overflow::kWindow ? "cut into windows" : "truncated");
  }
  const TeacherShape size = shape(plan);
  check_free_space(context.world, folder, size.file_bytes());
  ResultsSpec spec;
  spec.columns = teacher_columns(size);
  spec.num_units = plan.num_units;
  spec.default_plot_column = "/teacher/entropy";
  spec.attributes = {{"format", "magister.teacher_logits"},
                     {"format_version", std::uint64_t{1}},
                     {"software", "magister"},
                     {"software_version", MAGISTER_VERSION},
                     {"experiment", context.experiment_yaml}};
  spec.attributes.insert(spec.attributes.end(), identity.begin(), identity.end());
  spec.attributes.emplace_back(
      "plan_sha256", sha256_hex(fmt::format("samples {} tokens {} units {} unit_tokens {} lengths {:016x}", plan.num_samples,
                                            plan.num_tokens, plan.num_units, config_.unit_tokens, plan.lengths_digest)));
  spec.attributes.emplace_back("num_samples", plan.num_samples);
  spec.attributes.emplace_back("num_tokens", plan.num_tokens);
  ResultsFile file = ResultsFile::create(context.world, context.results_path, spec);
  plan.write_fixed_columns(file);
  file.freeze();
  context.log.event("plan", {{"task", name()}, {"samples", plan.num_samples}, {"tokens", plan.num_tokens},
                             {"units", plan.num_units}, {"bytes", size.file_bytes()}});
  return file;
}

ExitCode TeacherLogits::run(RunContext& context) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  PhaseTimes times;
  const GpuGroup group = resolve_group(context, config_.model, pass_shape());
  make_folder(context.world, std::filesystem::path(context.results_path).parent_path().string());
  const ResultsLock lock(context.world, context.results_path);
  if (context.fresh) put_aside(context.world, context.results_path);
  const ResultsFile::State state = state_everywhere(context.world, context.results_path);

  const OpenModel model = open_model(context.world, config_.model, queue_of(group));
  partition_for(model.description.config, group.first_tp_rank(), group.tp_size());  // refuses what cannot be divided
  const Tokenizer tokenizer = load_tokenizer(config_.model.path);
  rules(model.description.config);
  const Dataset dataset = Dataset::open(context.world, config_.dataset);
  const Attributes expected = identity(context, model, tokenizer, dataset, group.tp_size());
  if (state == ResultsFile::State::kComplete) {
    check_complete(context.world, context.results_path, expected);
    log_info("{}: {} is complete already; nothing to do (--fresh puts it aside and starts over)", name(),
             context.results_path);
    return ExitCode::kDone;
  }
  ResultsFile file = state == ResultsFile::State::kPartial
                         ? ResultsFile::resume(context.world, context.results_path, expected)
                         : create(context, model, tokenizer, dataset, expected, times);
  times.add("prepare", seconds());
  const std::optional<LossPlan> loss =
      plan_quantization_loss(context, group, {name(), config_.model.quantization_loss, model, file, expected});
  return compute(context, group, model, file, loss, times);
}

ExitCode TeacherLogits::compute(RunContext& context, const GpuGroup& group, const OpenModel& model, ResultsFile& file,
                                const std::optional<LossPlan>& loss, PhaseTimes& times) const {
  return run_unit_loop({context, group, file, name(), context.results_path, times,
                        model.facts()},
                       [&](const UnitWork& work) {
    run_teacher_units({{group, file, work, model, [&] { return context.stop.raised(); }, loss, times, pass_shape()},
                       static_cast<std::int64_t>(config_.top_k), config_.logprob_f16, config_.assistant_only});
  });
}

PlanReport TeacherLogits::plan(RunContext& context, int num_ranks) {
  const LayoutConfig layout = sized_layout(context, config_.model, pass_shape(), num_ranks);
  const OpenModel model = open_model(context.world, config_.model, queue_of(plan_layout(num_ranks, layout)));
  const ModelConfig& config = model.description.config;
  PlanReport report;
  plan_devices(report, num_ranks, layout, {config, model.dtype, model.quantization, model.layers()});
  report.device_parts = model.device_memory(report.tp_size, pass_shape(), 0);
  report.device_bytes = sum_of(report.device_parts);
  check_device_memory(report);
  const Tokenizer tokenizer = load_tokenizer(config_.model.path);
  const Dataset dataset = Dataset::open(context.world, config_.dataset);
  const std::unique_ptr<ChatPrompts> chat = open_chat(tokenizer);
  const SamplePlan samples = SamplePlan::make(context.world, dataset, tokenizer, rules_with(config, chat.get()),
                                              std::filesystem::temp_directory_path().string());
  report.num_samples = samples.num_samples;
  report.num_units = samples.num_units;
  report.num_tokens = samples.num_tokens;
  report.results_bytes = shape(samples).file_bytes();
  report.free_bytes = free_bytes_for(context.results_path);
  report.notes = {{"records", std::to_string(dataset.records().size())},
                  {"longest sample", fmt::format("{} tokens", samples.longest_sample)},
                  {"longer than max_length", std::to_string(samples.num_cut)}};
  return report;
}

}  // namespace

std::unique_ptr<Task> make_teacher_logits(TeacherLogitsConfig config) {
  return std::make_unique<TeacherLogits>(std::move(config));
}

}  // namespace magister
