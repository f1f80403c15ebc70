// Task generate: prompts -> tokens -> completions in slots of a running file -> one packed results file. Columns,
// packing and the worker have their own files in this folder.
#include "magister/run/task.h"

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/units_of_measure.h"
#include "magister/run/packed_results.h"
#include "magister/run/results_on_disk.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/end_tokens.h"
#include "magister/text/verifier.h"
#include "tasks/generate/config.h"
#include "tasks/generate/most_asked.h"
#include "tasks/generate/record_columns.h"
#include "tasks/generate/request_answers.h"
#include "tasks/generate/request_prompts.h"
#include "tasks/generate/worker.h"

namespace magister {
namespace {

class GenerateJob final : public TaskJob {
 public:
  GenerateJob(const GenerateConfig& config, const TaskInputs& inputs);

  Attributes identity() override;
  std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) override {
    std::vector<std::string> names;
    if (value_) value_->keep_weights(store, identity, names);
    return names;
  }
  Awaited awaited() const override { return {.placeholder = value_ && value_->is_placeholder()}; }
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override;
  MemoryDemand demand(const PlanNumbers& plan) const override;
  void work(const ModelRun& run) override;
  std::unique_ptr<ShardWorker> worker(ShardContext shard) override {
    const GenerateShape size = shape(shard.run.plan);
    return make_generate_worker(std::move(shard), setup_, size);
  }
  Packing packing() override {
    return [this](const ResultsFile& running, const PlanNumbers& plan, const std::string& path,
                  const Attributes& root) { return pack(running, shape(plan), path, root); };
  }

 private:
  bool pack(const ResultsFile& running, const GenerateShape& size, const std::string& path,
            const Attributes& root) const;
  void open_prompt();
  void open_requests();
  void warn_of_unended_chats() const;
  void add_stop_tokens(Checkpoint& checkpoint);
  void add_logit_bias();
  void warn_of_long_texts(const GenerateShape& size) const;
  GenerateShape shape(const PlanNumbers& plan) const {
    const std::uint64_t reference = 2 * model_.parameters_a_token();
    const bool guided = value_ && value_->params().multiplier != 0;
    const std::uint64_t value = guided ? 2 * value_->parameters_a_token() : 0;
    return {
        .num_records = plan.num_samples,
        .num_tokens = plan.num_tokens,
        .texts = config_.n,
        .slots = config_.max_new_tokens.tokens(),
        .key_bytes = plan.key_bytes,
        .top = config_.top_logprobs,
        .guided = value_ != nullptr,
        .flops_a_token = (reference + value * (guided ? static_cast<std::uint64_t>(value_->params().candidates) : 0)) *
                         config_.best_of / config_.n,
        .flops_a_prompt_token = (reference + value) / config_.n};
  }

  GenerateSetup setup_;
  const GenerateConfig& config_;  // the one of setup_
  const PassShape pass_;
  const TaskInputs inputs_;
  OpenModel reference_;  // its cache leaves room for the value model
  const ModelConfig& model_;
  const Tokenizer& tokenizer_;
  std::string constraint_sha256_ = "none";
  std::unique_ptr<ValueModel> value_;   // null: no guide
  std::optional<ChatPrompts> chat_;     // if the records hold chats
  std::optional<RecordPrompt> prompt_;  // if the experiment writes the prompts from the records' fields
  std::optional<PromptEncoder> encoder_;
};

GenerateJob::GenerateJob(const GenerateConfig& config, const TaskInputs& inputs)
    : setup_{without_auto(config, inputs.model.pass_limits()), inputs.checkpoint.tokenizer()},
      config_(setup_.config),
      pass_(text_pass(config_, config_.limits({}))),
      inputs_(inputs),
      reference_(inputs.model),
      model_(inputs.checkpoint.config()),
      tokenizer_(setup_.tokenizer) {
  check_positions(model_, config_.length_place, config_.max_prompt_length.tokens(), config_.max_new_tokens.tokens());
  MAGISTER_CHECK(config_.top_logprobs <= static_cast<std::uint64_t>(model_.vocab_size), ExitCode::kConfig,
                 "{} is {} (the "
                 "vocabulary has {} entries); lower it",
                 config_.top_logprobs_place, config_.top_logprobs, model_.vocab_size);
  add_stop_tokens(inputs.checkpoint);
  add_logit_bias();
  if (config_.constraint) {
    const ConstraintRule rule = load_constraint(inputs.context.world, *config_.constraint, config_.name);
    setup_.stops.constrained = true;
    constraint_sha256_ = constraint_sha256(rule);
    setup_.constraint = compile_constraint(rule, tokenizer_, setup_.stops.tokens, model_.vocab_size);
  }
  if (config_.requests) open_requests();
  if (config_.guide) {
    value_ = std::make_unique<ValueModel>(
        *config_.guide, inputs,
        GuidedTexts{config_.longest_text(), config_.max_sequences, config_.token_budget, pass_});
    reference_.reserved_bytes = value_->gpu_bytes();
  }
  if (config_.prompt) open_prompt();
  if (!config_.requests && !config_.dataset.messages_field.empty()) chat_.emplace(inputs.checkpoint, config_.dataset);
  if (chat_) warn_of_unended_chats();
}

// A base model answers requests with a prompt, which need no chat template.
void GenerateJob::open_requests() {
  if (inputs_.checkpoint.chat_source() != nullptr) chat_.emplace(inputs_.checkpoint, config_.dataset);
  setup_.requests =
      std::make_shared<const RequestTable>(inputs_.dataset, config_, setup_.stops, tokenizer_, model_.vocab_size,
                                           chat_ && chat_->writes_tools(), inputs_.context.stop_poll());
  leave_if_stopped(inputs_.context.world, inputs_.context.stop);
  if (!setup_.requests->has_chats()) return chat_.reset();
  if (!chat_) chat_.emplace(inputs_.checkpoint, config_.dataset);
}

void GenerateJob::warn_of_unended_chats() const {
  if (!config_.ignore_eos)
    warn_of_unended_turn(inputs_.checkpoint, config_.name, setup_.stops.tokens, setup_.stops.texts);
}

void GenerateJob::open_prompt() {
  prompt_.emplace(*config_.prompt, config_.name);
  encoder_.emplace(inputs_.checkpoint, config_.use_chat_template);
  if (encoder_->is_chat()) warn_of_unended_chats();
  if (!inputs_.data_is_placeholder) prompt_->check_names(first_field_names(inputs_.dataset));
}

bool GenerateJob::pack(const ResultsFile& running, const GenerateShape& size, const std::string& path,
                       const Attributes& root) const {
  const StopPoll poll = inputs_.context.stop_poll();
  std::optional<TextColumns> fields = TextColumns();
  if (prompt_)
    fields = record_columns(inputs_.dataset, prompt_->names(), config_.n, size.num_records * config_.n, poll);
  if (setup_.requests)
    fields = measured(request_columns(running, size, inputs_.dataset, *setup_.requests, tokenizer_, poll));
  const auto rules = [this](std::uint64_t record) -> const StopRules& { return setup_.stops_of(record); };
  return fields && pack_texts(running, size, path, root, tokenizer_, rules, poll, *fields);
}

Attributes GenerateJob::identity() {
  Attributes all = {{"constraint_sha256", constraint_sha256_}};
  if (!value_) return all;
  for (auto& attribute : value_->identity(inputs_.context.world, inputs_.context.stop_poll()))
    all.push_back(std::move(attribute));
  leave_if_stopped(inputs_.context.world, inputs_.context.stop);
  return all;
}

// The memory of both models. For a multiplier of 0 the value model's weights are never read.
MemoryDemand GenerateJob::demand(const PlanNumbers& plan) const {
  const std::uint64_t longest = plan.longest_sample + config_.max_new_tokens.tokens();
  MemoryDemand demand;
  demand.cache_pages =
      static_cast<std::uint64_t>(pages_of_texts(reference_, inputs_.tp_size, pass_, longest, config_.max_sequences));
  if (!value_ || value_->params().multiplier == 0) return demand;
  demand.device = inputs_.model.device_memory(inputs_.tp_size, pass_, demand.cache_pages);
  for (auto& part : value_->memory(longest)) demand.device.push_back(std::move(part));
  return demand;
}

void GenerateJob::add_stop_tokens(Checkpoint& checkpoint) {
  setup_.stops.texts = config_.stop;
  setup_.stops.tokens = config_.stop_tokens;
  for (const TokenId id : config_.stop_tokens) {
    MAGISTER_CHECK(id < model_.vocab_size, ExitCode::kConfig,
                   "{} names {} (the vocabulary has {} entries); name one of "
                   "them",
                   config_.stop_tokens_place, id, model_.vocab_size);
  }
  setup_.config.sampling.rules = checkpoint.rules(!config_.ignore_eos);
  if (config_.ignore_eos) return;
  const std::vector<TokenId>& ends = checkpoint.end_tokens();
  setup_.stops.tokens.insert(setup_.stops.tokens.end(), ends.begin(), ends.end());
}

// Adds the token ids of logit_bias.
void GenerateJob::add_logit_bias() {
  for (const LogitBias& entry : config_.logit_bias) {
    const TokenId id = entry.token.empty() ? entry.id : tokenizer_.token_to_id(entry.token);
    const std::string shown = entry.token.empty() ? std::to_string(id) : fmt::format("\"{}\"", printable(entry.token));
    MAGISTER_CHECK(id >= 0 && id < model_.vocab_size, ExitCode::kConfig,
                   "{} names token {} (the vocabulary of {} entries has "
                   "none); name one as `magister tokenize` shows them, or its id",
                   entry.place, shown, model_.vocab_size);
    for (const auto& [other, bias] : setup_.config.sampling.logit_bias) {
      MAGISTER_CHECK(other != id, ExitCode::kConfig,
                     "{} names token {} twice (which bias counts is ambiguous); "
                     "remove one entry",
                     entry.place, shown);
    }
    setup_.config.sampling.logit_bias.emplace_back(id, entry.bias);
  }
}

SampleRules GenerateJob::rules() {
  SampleRules rules =
      prompt_rules(config_, value_ ? std::min(model_.vocab_size, value_->vocab_size()) : model_.vocab_size,
                   config_.dataset.tokens_field.empty() ? &tokenizer_ : nullptr);
  if (prompt_) {
    rules.encode = [this](const Record& record) -> std::vector<SampleTokens> {
      return {encoder_->encode(prompt_->render(*record.fields, {}, record.where), record.where)};
    };
  }
  if (setup_.requests) {
    rules.expected_text = expect_field(config_.dataset, "body", "dataset.path", is_blank_request);
    rules.encode = [this](const Record& record) -> std::vector<SampleTokens> {
      return {tokens_of_request(record, tokenizer_, chat_ ? &*chat_ : nullptr)};
    };
    return rules;
  }
  if (config_.dataset.tokens_field.empty() && !chat_ && !prompt_)
    rules.expected_text = expect_field(config_.dataset, config_.dataset.text_field, "dataset.text",
                                       [](const Record& record) { return is_blank(record.text); });
  if (chat_) {
    rules.expected_text =
        expect_field(config_.dataset, config_.dataset.messages_field, "dataset.messages",
                     [this](const Record& record) { return ChatPrompts::chat_of(record, config_.dataset).is_empty(); });
    rules.encode = [this](const Record& record) -> std::vector<SampleTokens> {
      return {chat_->encode(ChatPrompts::chat_of(record, config_.dataset), true, record.where)};
    };
  }
  return rules;
}

TaskResults GenerateJob::results(const PlanNumbers& plan) const {
  TaskResults results;
  results.columns = running_columns(shape(plan));
  results.packed_bytes = packed_bytes(shape(plan), kTextBytesAToken);
  results.format_version = 2;
  results.made_smaller_by = "max_new_tokens or n";
  results.notes = {
      {"completions", std::to_string(setup_.requests ? setup_.requests->num_texts() : plan.num_samples * config_.n)},
      {"packed file", fmt::format("at most {} bytes, if every token were the vocabulary's longest",
                                  packed_bytes(shape(plan), longest_token_bytes(tokenizer_)))},
      {"most new tokens", std::to_string(plan.num_samples * config_.best_of * config_.max_new_tokens.tokens())}};
  if (value_) results.notes.emplace_back("guide", value_->describe());
  return results;
}

// The size of the texts is known, and checked, when they are packed. This warns before the work if the largest possible
// size does not fit.
void GenerateJob::warn_of_long_texts(const GenerateShape& size) const {
  const std::uint64_t most = packed_bytes(size, longest_token_bytes(tokenizer_)),
                      free = free_bytes_for(inputs_.context.results_path);
  if (most <= free) return;
  log_warning(
      "{}: {} bytes are free, and the final file would need {} if every token were the vocabulary's longest (what it "
      "really needs is checked before texts are packed; nothing is lost then); keep more space free",
      config_.name, free, most);
}

void GenerateJob::work(const ModelRun& run) {
  warn_of_long_texts(shape(run.plan));
  if (value_) setup_.guide = value_->shard_guide(run.plan.longest_sample + config_.max_new_tokens.tokens());
  TaskJob::work(run);
}

class Generate final : public Task {
 public:
  explicit Generate(GenerateConfig config)
      : Task("generate", config.name, config.model, config.dataset,
             {.keeps_widths = true, .needs = {config.guide ? config.guide->model.task : std::string()}}),
        config_(std::move(config)) {}

  std::vector<SecondModel> second_models(const PassLimits& device) const override {
    const PassLimits chosen = config_.limits(device);
    const PassShape pass = pass_shape(device);
    return value_models(config_.guide, {.longest = pass.sequence_tokens,
                                        .max_sequences = chosen.sequences,
                                        .token_budget = chosen.tokens,
                                        .pass = pass});
  }
  std::uint64_t cached_tokens() const override { return config_.longest_text(); }
  void fit_to_records(const RunContext& context) override {
    const bool all_written =
        config_.max_new_tokens.is_written() && config_.n_key.is_written() && config_.top_logprobs_key.is_written();
    if (!config_.requests || all_written) return;
    asked_ = most_asked(context, config_);
    config_.take(*asked_);
  }
  Notes fit_lengths(const Positions& own, const PositionsOf& of) override {
    Notes notes;
    if (asked_)
      notes.emplace_back("requests", fmt::format("ask for at most {}, {} and {} of the likeliest a token (the task's "
                                                 "max_new_tokens, n and top_logprobs where they are not written)",
                                                 format_count(asked_->new_tokens, "token"),
                                                 format_count(asked_->texts, "text"), asked_->top_logprobs));
    if (both_written(config_.max_prompt_length, config_.max_new_tokens)) return notes;
    const std::uint64_t guide = config_.guide ? of(config_.guide->model).cached : 0;
    magister::fit_lengths(config_.max_prompt_length, config_.max_new_tokens, fewer(own.cached, guide), notes);
    return notes;
  }
  PassShape pass_shape(const PassLimits& device) const override { return text_pass(config_, config_.limits(device)); }
  ModelWork model_work(double samples, double tokens) const override {
    const double texts = samples * static_cast<double>(config_.best_of);
    return {tokens, texts * static_cast<double>(config_.max_new_tokens.tokens()), 0,
            std::min(texts, static_cast<double>(config_.limits({}).sequences))};
  }
  RecordTexts record_texts(const RunContext&) const override {
    return {config_.requests && !config_.n_key.is_written() ? 0 : config_.n};
  }
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override {
    return std::make_unique<GenerateJob>(config_, inputs);
  }

 private:
  GenerateConfig config_;
  std::optional<MostAsked> asked_;  // by the requests, if keys are left to them
};

constexpr ExportFormat kAnswerFormats[] = {{"openai_batch", true, export_openai_batch}};

}  // namespace

TaskKind generate_task() {
  return {.name = "generate",
          .read = read_as<Generate, read_generate_config>,
          .schema = &kGenerateSchema,
          .draws = true,
          .exports = kAnswerFormats};
}

}  // namespace magister
