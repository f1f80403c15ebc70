// Task generate: prompts -> tokens -> texts under way in slots -> one packed results file.
// This file is the order of things; columns, packing and the loop have files of their own beside it.
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/model/partition.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "magister/tasks/generate_config.h"
#include "magister/run/memory_plan.h"
#include "magister/run/model_source.h"
#include "magister/run/run_log.h"
#include "magister/run/task.h"
#include "magister/run/chat_prompts.h"
#include "magister/run/device_group.h"
#include "tasks/generate_run.h"
#include "magister/run/model_hash.h"
#include "magister/run/open_model.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/sample_plan.h"

namespace magister {
namespace {

// What a run has opened: equal on every rank.
struct Opened {
  OpenModel model;
  Tokenizer tokenizer;
  Dataset dataset;
  StopRules stops;
  SamplingParams sampling;
  std::string constraint_sha256 = "none";
  std::shared_ptr<const Constraint> constraint;  // null: texts are free
  std::unique_ptr<ChatPrompts> chat;  // where the data set holds chats
};

class Generate final : public Task {
 public:
  explicit Generate(GenerateConfig config) : Task("generate", config.name, config.model), config_(std::move(config)) {}

  PassShape pass_shape() const override { return {config_.token_budget, config_.max_prompt_length + config_.max_new_tokens, 0}; }
  PlanReport plan(RunContext& context, int num_ranks) override;
  ExitCode run(RunContext& context) override;

 private:
  Opened open(const Communicator& world, const std::optional<gpu::Queue>& gpu) const;
  void open_chat(Opened& opened) const;
  SamplingParams sampling(const Opened& opened) const;
  SampleRules rules(const Opened& opened) const;
  GenerateShape shape(const SamplePlan& plan) const;
  Attributes identity(const RunContext& context, const Opened& opened, int tp_size) const;
  Attributes root_attributes(const RunContext& context, const Attributes& identity, const std::string& plan_sha256) const;
  ResultsFile create(RunContext& context, const std::string& running_path, const Opened& opened, const Attributes& identity,
                     PhaseTimes& times) const;

  GenerateConfig config_;
};

Opened Generate::open(const Communicator& world, const std::optional<gpu::Queue>& gpu) const {
  Opened opened{open_model(world, config_.model, gpu), load_tokenizer(config_.model.path), Dataset::open(world, config_.dataset),
                {}, {}, "none", nullptr, nullptr};
  const ModelConfig& model = opened.model.description.config;
  opened.stops.texts = config_.stop;
  opened.stops.tokens = config_.stop_tokens;
  for (const TokenId id : config_.stop_tokens) {
    MAGISTER_CHECK(id < model.vocab_size, ExitCode::kConfig, "tasks: {}: stop_tokens names {} (the vocabulary has {} entries); "
                   "name one of them", config_.name, id, model.vocab_size);
  }
  if (!config_.ignore_eos) {
    for (const TokenId id : end_tokens(config_.model.path, model)) opened.stops.tokens.push_back(id);
  }
  opened.sampling = sampling(opened);
  MAGISTER_CHECK(config_.top_logprobs <= static_cast<std::uint64_t>(model.vocab_size), ExitCode::kConfig, "tasks: {}: "
                 "top_logprobs is {} (the vocabulary has {} entries); lower it", config_.name, config_.top_logprobs, model.vocab_size);
  if (config_.constraint) {
    const ConstraintRule rule = load_constraint(world, *config_.constraint, config_.name);
    opened.stops.constrained = true;
    opened.constraint_sha256 = constraint_sha256(rule);
    opened.constraint = compile_constraint(rule, opened.tokenizer, opened.stops.tokens, model.vocab_size);
  }
  return opened;
}

// The experiment's, with the ids that logit_bias means.
SamplingParams Generate::sampling(const Opened& opened) const {
  SamplingParams sampling = config_.sampling;
  const std::int64_t vocab_size = opened.model.description.config.vocab_size;
  for (const LogitBias& entry : config_.logit_bias) {
    const TokenId id = entry.token.empty() ? entry.id : opened.tokenizer.token_to_id(entry.token);
    const std::string shown = entry.token.empty() ? std::to_string(id) : fmt::format("\"{}\"", printable(entry.token));
    MAGISTER_CHECK(id >= 0 && id < vocab_size, ExitCode::kConfig, "tasks: {}: logit_bias names token {} (the vocabulary of {} "
                   "entries has none); name one as `magister tokenize` shows them, or its id", config_.name, shown, vocab_size);
    for (const auto& [other, bias] : sampling.logit_bias) {
      MAGISTER_CHECK(other != id, ExitCode::kConfig, "tasks: {}: logit_bias names token {} twice (which bias is meant is open); "
                     "remove one entry", config_.name, shown);
    }
    sampling.logit_bias.emplace_back(id, entry.bias);
  }
  return sampling;
}

// Refers to the tokenizer, so it is made where that stays.
void Generate::open_chat(Opened& opened) const {
  if (config_.dataset.messages_field.empty()) return;
  opened.chat = std::make_unique<ChatPrompts>(config_.model.path, config_.model.chat_template, opened.tokenizer, config_.dataset.special_tokens_in_messages);
}

SampleRules Generate::rules(const Opened& opened) const {
  const ModelConfig& model = opened.model.description.config;
  const std::uint64_t longest = config_.max_prompt_length + config_.max_new_tokens;
  MAGISTER_CHECK(model.max_position_embeddings <= 0 || longest <= static_cast<std::uint64_t>(model.max_position_embeddings),
                 ExitCode::kConfig, "{} is {} and max_new_tokens {}, together {}, but the model was made for {} "
                 "positions (texts beyond them would be meaningless); lower one of them", config_.length_place, config_.max_prompt_length,
                 config_.max_new_tokens, longest, model.max_position_embeddings);
  SampleRules rules;
  rules.max_length = config_.max_prompt_length;
  rules.overflow = Overflow::kError;
  rules.length_key = "max_prompt_length";
  rules.may_cut = false;
  rules.vocab_size = model.vocab_size;
  rules.records_hold_tokens = !config_.dataset.tokens_field.empty();
  rules.unit_tokens = config_.max_prompt_length;
  rules.unit_samples = 1;  // a record is committed as soon as its texts are there
  rules.min_length = 1;
  if (opened.chat) {
    rules.encode = [&](const Record& record) -> std::vector<SampleTokens> {
      return {opened.chat->encode(record_field(record.text, config_.dataset.messages_field, record.where), true, record.where)};
    };
  }
  return rules;
}

GenerateShape Generate::shape(const SamplePlan& plan) const {
  return {plan.num_samples, plan.num_tokens, plan.num_units, config_.n, config_.max_new_tokens, plan.max_key_bytes,
          config_.top_logprobs};
}

Attributes Generate::identity(const RunContext& context, const Opened& opened, int tp_size) const {
  const IndexRange slice = opened.dataset.records();
  return {{"config_sha256", sha256_hex(context.config_yaml)},
          {"model_sha256", model_sha256(context.world, config_.model.path, *opened.model.file)},
          {"tokenizer_sha256", opened.tokenizer.sha256()},
          {"dataset_sha256", opened.dataset.sha256()},
          {"chat_template_sha256", opened.chat ? opened.chat->sha256() : std::string("none")},
          {"constraint_sha256", opened.constraint_sha256},
          {"dtype", dtype_name(opened.model.dtype)}, {"device", opened.model.device_kind()},
          {"tp_size", static_cast<std::uint64_t>(tp_size)},
          {"source_records", opened.dataset.num_source_records()},
          {"slice_begin", slice.begin},
          {"slice_end", slice.end}};
}

Attributes Generate::root_attributes(const RunContext& context, const Attributes& identity, const std::string& plan_sha256) const {
  Attributes attributes = {{"format", "magister.generate"},
                           {"format_version", std::uint64_t{1}},
                           {"software", "magister"},
                           {"software_version", MAGISTER_VERSION},
                           {"experiment", context.experiment_yaml}};
  attributes.insert(attributes.end(), identity.begin(), identity.end());
  attributes.emplace_back("plan_sha256", plan_sha256);
  return attributes;
}

// The plan in two numbers that the file itself holds, so that a restart finds the same without tokenising again.
std::string plan_sha256(const GenerateShape& shape) {
  return sha256_hex(fmt::format("records {} prompt tokens {} texts {} slots {} key bytes {}", shape.num_records, shape.num_tokens,
                                shape.texts, shape.slots, shape.key_bytes));
}

ResultsFile Generate::create(RunContext& context, const std::string& running_path, const Opened& opened,
                             const Attributes& identity, PhaseTimes& times) const {
  const std::string folder = std::filesystem::path(running_path).parent_path().string();
  const auto tokenized = [&] {
    const PhaseTimes::Span span(times, "tokenise");
    return SamplePlan::make(context.world, opened.dataset, opened.tokenizer, rules(opened), folder);
  };
  SamplePlan plan = tokenized();
  const PhaseTimes::Span span(times, "create the file");
  const GenerateShape size = shape(plan);
  check_free_space(context.world, folder, 2 * size.file_bytes());
  ResultsSpec spec;
  spec.columns = running_columns(size);
  spec.num_units = plan.num_units;
  spec.attributes = root_attributes(context, identity, plan_sha256(size));
  spec.attributes.emplace_back("num_samples", plan.num_samples);
  spec.attributes.emplace_back("num_tokens", plan.num_tokens);
  spec.attributes.emplace_back("key_bytes", plan.max_key_bytes);
  spec.attributes.emplace_back("longest_prompt", plan.longest_sample);
  ResultsFile file = ResultsFile::create(context.world, running_path, spec);
  plan.write_fixed_columns(file);
  file.freeze();
  context.log.event("plan", {{"task", name()}, {"records", plan.num_samples}, {"prompt_tokens", plan.num_tokens},
                             {"bytes", size.file_bytes()}});
  return file;
}

ExitCode Generate::run(RunContext& context) {
  const auto begin = std::chrono::steady_clock::now();
  PhaseTimes times;
  const GpuGroup group = resolve_group(context, config_.model, pass_shape());
  const std::filesystem::path results(context.results_path);
  const std::string running_path = (results.parent_path() / results.stem()).string() + ".running.h5";
  make_folder(context.world, results.parent_path().string());
  const ResultsLock lock(context.world, context.results_path);
  if (context.fresh) {
    put_aside(context.world, context.results_path);
    put_aside(context.world, running_path);
  }
  Opened opened = open(context.world, queue_of(group));
  open_chat(opened);
  const ModelConfig& model = opened.model.description.config;
  partition_for(model, group.first_tp_rank(), group.tp_size());  // refuses what cannot be divided
  rules(opened);
  const Attributes expected = identity(context, opened, group.tp_size());
  if (state_everywhere(context.world, context.results_path) == ResultsFile::State::kComplete) {
    check_complete(context.world, context.results_path, expected);
    if (context.world.rank() == 0) ::unlink((running_path + ".partial").c_str());  // of a run that was killed at its very end
    log_info("{}: {} is complete already; nothing to do (--fresh puts it aside and starts over)", name(), context.results_path);
    return ExitCode::kDone;
  }
  const bool resumes = state_everywhere(context.world, running_path) == ResultsFile::State::kPartial;
  ResultsFile file = resumes ? ResultsFile::resume(context.world, running_path, expected)
                             : create(context, running_path, opened, expected, times);
  times.add("prepare", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());

  const auto number = [&](const char* of) { return ResultsFile::read_number(context.world, running_path + ".partial", of); };
  const GenerateShape size{number("num_samples"), number("num_tokens"), file.num_units(), config_.n, config_.max_new_tokens,
                           number("key_bytes"), config_.top_logprobs};
  const auto pages = static_cast<std::uint64_t>(num_cache_pages(opened.model, group.tp_size(), config_, pass_shape(), number("longest_prompt")));
  const auto num_pages = static_cast<std::int64_t>(context.world.min(pages));
  const std::optional<LossPlan> loss =
      plan_quantization_loss(context, group, {name(), config_.model.quantization_loss, opened.model, file, expected});
  UnitLoop loop{context, group, file, name(), context.results_path, times, opened.model.facts(), false};
  const ExitCode code = run_unit_loop(std::move(loop), [&](const UnitWork& work) {
    run_generate_units({{group, file, work, opened.model, [&] { return context.stop.raised(); }, loss, times, pass_shape(), num_pages}, config_, size,
                        opened.tokenizer, opened.stops, opened.sampling, opened.constraint.get(), num_pages});
  });
  if (code != ExitCode::kDone) return code;
  if (context.world.rank() == 0) {
    fail_point("generate.pack.begin");
    pack_texts(file, size, context.results_path, root_attributes(context, expected, plan_sha256(size)), opened.tokenizer, opened.stops);
    fail_point("generate.pack.done");
    ::unlink((running_path + ".partial").c_str());
  }
  context.world.wait_for_all();
  log_info("{}: {} is complete", name(), context.results_path);
  return ExitCode::kDone;
}

PlanReport Generate::plan(RunContext& context, int num_ranks) {
  const LayoutConfig layout = sized_layout(context, config_.model, pass_shape(), num_ranks);
  Opened opened = open(context.world, queue_of(plan_layout(num_ranks, layout)));
  open_chat(opened);
  const ModelConfig& model = opened.model.description.config;
  PlanReport report;
  plan_devices(report, num_ranks, layout, {model, opened.model.dtype, opened.model.quantization, opened.model.layers()});
  const SamplePlan samples = SamplePlan::make(context.world, opened.dataset, opened.tokenizer, rules(opened),
                                              std::filesystem::temp_directory_path().string());
  const auto pages = static_cast<std::uint64_t>(num_cache_pages(opened.model, report.tp_size, config_, pass_shape(), samples.longest_sample));
  report.device_parts = opened.model.device_memory(report.tp_size, pass_shape(), pages);
  report.device_bytes = sum_of(report.device_parts);
  check_device_memory(report);
  report.num_samples = samples.num_samples;
  report.num_units = samples.num_units;
  report.num_tokens = samples.num_tokens;
  report.results_bytes = 2 * shape(samples).file_bytes();
  report.free_bytes = free_bytes_for(context.results_path);
  report.notes = {{"texts", std::to_string(samples.num_samples * config_.n)},
                  {"longest prompt", fmt::format("{} tokens", samples.longest_sample)},
                  {"most new tokens", std::to_string(samples.num_samples * config_.best_of * config_.max_new_tokens)}};
  return report;
}

}  // namespace

std::unique_ptr<Task> make_generate(GenerateConfig config) { return std::make_unique<Generate>(std::move(config)); }

}  // namespace magister
