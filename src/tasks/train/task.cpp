// Task train: data set, or a teacher's file -> tokens -> steps over micro-batches -> a model folder and its curves. The tokens stand in the
// working file <name>.running.h5, states of the training in <name>.checkpoints/; a teacher's rows are read where they are.
#include "magister/run/task.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/parallel/gathered.h"
#include "magister/parallel/thread_pool.h"
#include "magister/run/chat_prompts.h"
#include "magister/run/earlier_tasks.h"
#include "magister/run/open_model.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/unit_samples.h"
#include "magister/train/checkpoint.h"
#include "magister/train/gradient_tree.h"
#include "magister/train/teacher_rows.h"
#include "tasks/train/columns.h"
#include "tasks/train/config.h"
#include "tasks/train/data.h"
#include "tasks/train/model_folder.h"
#include "tasks/train/pairs.h"
#include "tasks/train/prompts.h"
#include "tasks/train/reference.h"
#include "tasks/train/run.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

std::string teacher_path(const TeacherSource& teacher, const RunContext& context) {
  return teacher.task.empty() ? teacher.results : results_path_of(context, teacher.task);
}

class TrainJob final : public TaskJob {
 public:
  TrainJob(const TrainConfig& config, const TaskInputs& inputs);

  bool inputs_exist() const override { return !config_.distills || teacher_ != nullptr; }
  Attributes identity() override;
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override;
  std::vector<std::pair<std::string, std::uint64_t>> memory(const PlanNumbers& plan) const override;
  std::vector<std::pair<std::string, std::string>> notes(const PlanNumbers& plan) const override;
  void put_aside() override;
  void work(const ModelRun& run, const PlanNumbers& plan) override {
    TrainingWork work{context_, config_, layout_, checkpoint_.file(), teacher_.get(), states(), state_identity()};
    work.pad_token_id = pad_token();
    if (config_.objective() == Objective::kReward)
      work.new_head = {config_.batches.seed, checkpoint_.config().initializer_range};
    if (prompts_) work.texts = prompts_->text_rules(context_.world, dataset_, log_folder());
    if (held_out_) {
      work.read_held_out = [this] {
        return HeldOut(context_.world, *held_out_, config_, checkpoint_.config().vocab_size,
                       [this](const Record& record) { return encode_text(record, config_.evaluate->dataset); });
      };
    }
    if (!config_.dataset.margin_field.empty()) work.read_margins = [this] { return margins(); };
    run_training(run, work, plan);
  }
  bool packs() const override { return true; }
  void check_complete() const override;
  bool pack(const ResultsFile& running, const PlanNumbers& plan, const std::string& path,
            const Attributes& root) override;

 private:
  // That no reward is read from: the model's, else its end token, as TRL has it; -1: neither.
  TokenId pad_token() {
    if (config_.objective() != Objective::kReward) return -1;
    const std::int64_t own = checkpoint_.config().pad_token_id;
    const std::vector<TokenId>& ends = checkpoint_.end_tokens();
    return own >= 0 ? static_cast<TokenId>(own) : ends.empty() ? -1 : ends.front();
  }
  // runs/<name>/<task>
  std::string folder() const { return fs::path(context_.results_path).replace_extension().string(); }
  std::string states() const { return folder() + ".checkpoints"; }
  std::string log_folder() const { return folder() + ".rollouts"; }
  std::string state_identity() const;
  ModelOrigin origin() const;
  void open_texts();
  void open_teacher(const TaskInputs& inputs);
  void open_held_out();
  std::vector<SampleTokens> encode(const Record& record);
  SampleTokens encode_text(const Record& record, const DatasetConfig& dataset);
  std::vector<double> margins() const;
  std::uint64_t steps(const PlanNumbers& plan) const;
  const FlatLayout& trained() const { return lora_ ? static_cast<const FlatLayout&>(*lora_) : layout_; }

  const TrainConfig& config_;
  const RunContext& context_;
  Checkpoint& checkpoint_;
  const OpenModel& model_;
  ParameterLayout layout_;
  std::unique_ptr<TeacherFile> teacher_;  // of a distillation, once it is there
  std::optional<LoraLayout> lora_;        // what is trained instead
  const Tokenizer* tokenizer_ = nullptr;  // null: the data set gives ids
  std::optional<ChatPrompts> chat_;       // where the records hold chats
  TokenId eos_ = -1;                      // that ends a text; -1: none is appended
  const Dataset& dataset_;
  std::optional<PairEncoder> pairs_;
  std::optional<PromptEncoder> prompts_;  // of GRPO
  std::optional<Dataset> held_out_;       // of train.evaluate
};

TrainJob::TrainJob(const TrainConfig& config, const TaskInputs& inputs)
    : config_(config),
      context_(inputs.context),
      checkpoint_(inputs.checkpoint),
      model_(inputs.model),
      layout_(config.objective() == Objective::kReward ? with_reward_head(inputs.checkpoint.description())
                                                       : inputs.checkpoint.description()),
      dataset_(inputs.dataset) {
  const ModelConfig& model = checkpoint_.config();
  MAGISTER_CHECK(inputs.tp_size == 1, ExitCode::kConfig,
                 "{}: a group of {} shards (every rank trains with a whole copy of the model); leave "
                 "layout.gpus_per_group and layout.shards_per_rank out",
                 config_.name, inputs.tp_size);
  MAGISTER_CHECK(fs::is_directory(checkpoint_.path()) && !checkpoint_.file().dequantizes(), ExitCode::kConfig,
                 "{}: {} is {} (its weights cannot be trained and saved under their names); name a folder of an "
                 "unquantised model in Hugging Face's layout",
                 config_.name, printable(checkpoint_.path(), 4096),
                 checkpoint_.file().dequantizes() ? "quantised" : "one file");
  MAGISTER_CHECK(model.max_position_embeddings <= 0 ||
                     config_.batches.max_length <= static_cast<std::uint64_t>(model.max_position_embeddings),
                 ExitCode::kConfig,
                 "{} is {}, but the model was made for {} positions (what it learns beyond them would be lost); choose "
                 "at most {}",
                 config_.length_place, config_.batches.max_length, model.max_position_embeddings,
                 model.max_position_embeddings);
  MAGISTER_CHECK(
      fs::weakly_canonical(checkpoint_.path()) != fs::weakly_canonical(folder()), ExitCode::kConfig,
      "{}: model.path is {}, where this training puts its own result (it would begin from what it replaces); "
      "give the experiment or the task another name",
      config_.name, printable(checkpoint_.path(), 4096));
  MAGISTER_CHECK(config_.objective() != Objective::kReward || !config_.trainer.lora, ExitCode::kConfig,
                 "{}: train.adapter with objective: reward (an adapter's folder has no head as yet); remove "
                 "train.adapter",
                 config_.name);
  if (config_.trainer.lora) {
    MAGISTER_CHECK(checkpoint_.section().adapter.empty(), ExitCode::kConfig,
                   "{}: train.adapter on a model with the adapter {} (the new one would belong to merged weights that "
                   "stand nowhere); merge the first with PEFT's merge_and_unload and name that folder as model.path",
                   config_.name, printable(checkpoint_.section().adapter));
    lora_.emplace(layout_, *config_.trainer.lora);
  }
  if (config_.distills) {
    open_teacher(inputs);
  } else {
    open_texts();
  }
  if (config_.evaluate) open_held_out();
}

void TrainJob::open_held_out() {
  held_out_.emplace(Dataset::open(context_.world, config_.evaluate->dataset));
  MAGISTER_CHECK(held_out_->records().size() > 0, ExitCode::kData,
                 "{}: train.evaluate.dataset has no records (there is no held-out loss); check the data set, or remove "
                 "train.evaluate",
                 config_.name);
  if (context_.world.rank() != 0 || held_out_->sha256() != dataset_.sha256()) return;
  log_warning(
      "{}: train.evaluate.dataset is what is learnt from (its loss says nothing about other records); name "
      "records that are held out",
      config_.name);
}

void TrainJob::open_texts() {
  if (config_.of_pairs()) {
    pairs_.emplace(checkpoint_, PairRules{config_.objective(), config_.dataset, config_.batches.max_length,
                                          config_.truncation, config_.append_eos});
    tokenizer_ = &checkpoint_.tokenizer();
    pad_token();  // reads what it reads before the identity is made
    return;
  }
  if (config_.of_prompts()) {
    tokenizer_ = &checkpoint_.tokenizer();
    prompts_.emplace(checkpoint_, config_);
    return;
  }
  if (config_.dataset.tokens_field.empty()) tokenizer_ = &checkpoint_.tokenizer();
  if (!config_.dataset.messages_field.empty()) {
    chat_.emplace(checkpoint_, config_.dataset);
  } else if (tokenizer_ != nullptr && config_.append_eos) {
    const std::vector<TokenId>& ends = checkpoint_.end_tokens();
    MAGISTER_CHECK(!ends.empty(), ExitCode::kConfig,
                   "{}: train.append_eos is true, but the model names no end token (nothing says where texts end); set "
                   "it to false",
                   config_.name);
    eos_ = ends.front();
  }
}

// Before the teacher's task has run its model tells whether the student fits.
void TrainJob::open_teacher(const TaskInputs& inputs) {
  const auto student = [this](bool has_text) {
    return StudentVocabulary{checkpoint_.config().vocab_size, has_text ? checkpoint_.tokenizer().sha256() : ""};
  };
  if (inputs.data_stands_in) {
    const Task& task = *require_results(context_, config_.name, "teacher.task", config_.teacher.task, "teacher_logits");
    Checkpoint teacher(task.model_section().stand_in());
    const bool has_text = task.dataset().tokens_field.empty();
    require_same_vocabulary(teacher.path(), static_cast<std::uint64_t>(teacher.config().vocab_size),
                            has_text ? teacher.tokenizer().sha256() : "none", student(has_text));
    return;
  }
  const std::string path = teacher_path(config_.teacher, context_);
  teacher_ = std::make_unique<TeacherFile>(path, student(ResultsReader(path).text("tokenizer_sha256") != "none"));
  MAGISTER_CHECK(
      !teacher_->sampled() || config_.trainer.distill.tail == DistillOptions::Tail::kBucket, ExitCode::kConfig,
      "{}: distill.tail is set, and the rows of {} are samples (they have no tail: each draw stands for a part "
      "of it); remove distill.tail",
      config_.name, printable(path, 4096));
  if (config_.trainer.distill.weight > 0)
    DistillRow(config_.trainer.distill, checkpoint_.config().vocab_size, teacher_->sampled());  // refuses biased losses
}

// The file itself is the data set, whose sha256 stands in the identity of every task.
Attributes TrainJob::identity() {
  if (prompts_) {
    Attributes attributes = {{"objective", std::string("grpo")}};
    if (prompts_->reward_model() != nullptr) {
      for (auto& attribute : prompts_->reward_model()->identity(context_.world, context_.stop_poll()))
        attributes.push_back(std::move(attribute));
      leave_if_stopped(context_.world, context_.stop);
    }
    return attributes;
  }
  if (held_out_) {
    return {{"evaluate_dataset_sha256", held_out_->sha256()}, {"evaluate_dataset_format", held_out_->formats()}};
  }
  if (config_.of_pairs())
    return {{"objective", std::string(config_.objective() == Objective::kDpo ? "dpo" : "reward")}};
  if (!config_.distills) return {};
  return {{"objective", std::string("distill")},
          {"teacher_model_sha256", teacher_->model_sha256()},
          {"teacher_encoding", teacher_->encoding()}};
}

// What a state must share with this run: the identity of the working file, which holds the plan, too.
std::string TrainJob::state_identity() const {
  const std::string running = folder() + ".running.h5.partial";
  std::string all;
  for (const char* const name : {"config_sha256", "model_sha256", "tokenizer_sha256", "chat_template_sha256",
                                 "end_tokens", "dataset_sha256", "dataset_format", "plan_sha256"})
    all += ResultsFile::read_text(running, name) + "\n";
  if (!held_out_) return sha256_hex(all);
  for (const char* const name : {"evaluate_dataset_sha256", "evaluate_dataset_format"})
    all += ResultsFile::read_text(running, name) + "\n";
  return sha256_hex(all);
}

// Every row of a teacher's file is checked here, before the first step.
std::vector<SampleTokens> TrainJob::encode(const Record& record) {
  if (pairs_) return pairs_->encode(record);
  if (prompts_) return {prompts_->encode(record)};
  if (teacher_ != nullptr) {
    TeacherSample sample = teacher_->sample(record.source_index);
    std::vector<std::uint8_t> learnt(sample.ids.size(), 0);
    for (std::size_t t = 0; t + 1 < learnt.size(); ++t) learnt[t + 1] = sample.valid[t];
    return {{std::move(sample.ids), std::move(learnt)}};
  }
  return {encode_text(record, config_.dataset)};
}

// A text, a chat or ids, of the data set that is learnt or held out.
SampleTokens TrainJob::encode_text(const Record& record, const DatasetConfig& dataset) {
  if (!dataset.tokens_field.empty()) return {record.tokens};
  if (!chat_) {
    std::vector<TokenId> ids;
    tokenizer_->encode(record.text, EncodeOptions{}, ids);
    if (eos_ >= 0 && (ids.empty() || ids.back() != eos_)) ids.push_back(eos_);
    return {std::move(ids)};
  }
  const ChatPrompts::Chat chat = ChatPrompts::chat_of(record, dataset);
  if (!config_.assistant_only) return {chat_->encode(chat, false, record.where)};
  ChatPrompts::MarkedTokens marked = chat_->encode_marked(chat, record.where, false);
  return {std::move(marked.ids), std::move(marked.assistant)};
}

// Every rank reads its part of the records. Collective over the world.
std::vector<double> TrainJob::margins() const {
  const IndexRange all = dataset_.records();
  const IndexRange own = micro_batches_of(all.size(), context_.world.rank(), context_.world.size());
  std::vector<double> margins;
  dataset_.for_each({all.begin + own.begin, all.begin + own.end},
                    [&](Record&& record) { margins.push_back(pairs_->margin(record)); });
  return gathered(context_.world, margins);
}

SampleRules TrainJob::rules() {
  SampleRules rules;
  rules.max_length = config_.batches.max_length;
  rules.overflow = Overflow::kTruncate;
  rules.unit_tokens = 1 << 20;
  rules.vocab_size = checkpoint_.config().vocab_size;
  rules.tokenizer = tokenizer_;
  rules.length_key = "train.max_length";
  rules.marks_assistant = config_.marks();
  if (pairs_) {
    rules.group_samples = 2;
    rules.unit_tokens = 16384;  // between two looks whether to stop, while the reference is asked
  }
  if (config_.of_prompts()) {
    rules.max_length = config_.longest_prompt();
    rules.overflow = Overflow::kError;
    rules.may_cut = false;
    rules.min_length = 1;
    rules.length_key = "train.max_length less grpo.max_new_tokens";
  }
  if (pairs_ || chat_ || eos_ >= 0 || teacher_ != nullptr || prompts_)
    rules.encode = [this](const Record& record) { return encode(record); };
  return rules;
}

// Of packed samples, and of batches by tokens, a lower bound.
std::uint64_t TrainJob::steps(const PlanNumbers& plan) const {
  const BatchOptions& batches = config_.batches;
  if (batches.steps > 0) return config_.updates(batches.steps);
  const std::uint64_t sequences =
      batches.packing ? plan.num_tokens / batches.max_length + 1 : plan.num_samples / (config_.of_pairs() ? 2 : 1);
  const std::uint64_t an_epoch = batches.batch_tokens > 0
                                     ? plan.num_tokens / batches.batch_tokens + 1
                                     : (sequences + batches.global_batch - 1) / batches.global_batch;
  return config_.updates(static_cast<std::uint64_t>(std::ceil(static_cast<double>(an_epoch) * batches.epochs)));
}

TaskResults TrainJob::results(const PlanNumbers& plan) const {
  TaskResults results;
  results.columns =
      sample_columns(plan.num_samples, plan.num_tokens, plan.key_bytes,
                     "tokens of sample i are offset[i] .. offset[i+1] of /tokens", "the tokens that are learnt from");
  if (config_.marks()) {
    results.columns.push_back({"/tokens/assistant", ColumnType::kU8, plan.num_tokens, 0,
                               config_.distills ? "1: the teacher has scored the row before it, which is learnt"
                               : pairs_         ? "1: of the answer, and learnt"
                                                : "1: written by the assistant of the chat, and learnt",
                               "", ColumnSpec::Extent::kRows});
  }
  if (config_.objective() == Objective::kDpo) {
    for (ColumnSpec& column : reference_columns(plan.num_samples)) results.columns.push_back(std::move(column));
  }
  // Of this the states take most: weights and two moments each.
  const std::uint64_t weights = 4 * static_cast<std::uint64_t>(trained().num_parameters());
  const std::uint64_t evaluations =
      config_.evaluate ? num_evaluations(steps(plan), config_.evaluate->every, steps(plan)) : 0;
  results.packed_bytes = train_results_bytes(steps(plan), evaluations) + weights + 3 * weights * (config_.keep + 1);
  return results;
}

std::vector<std::pair<std::string, std::uint64_t>> TrainJob::memory(const PlanNumbers& plan) const {
  const BatchOptions& batches = config_.batches;
  const std::uint64_t longest =
      std::max<std::uint64_t>(plan.longest_sample + (config_.of_prompts() ? config_.grpo.max_new_tokens : 0), 2);
  const std::uint64_t sequence = batches.packing ? batches.max_length : longest * (config_.of_pairs() ? 2 : 1);
  const std::uint64_t tokens =
      batches.micro_batch > 0 ? batches.micro_batch * sequence : std::max<std::uint64_t>(sequence, 1024);
  const int threads = std::max(1, usable_cores() / std::max(1, model_.shards_on_host));
  const std::uint64_t most_at_once =
      batches.batch_tokens > 0 ? batches.batch_tokens
                               : batches.global_batch * (config_.of_prompts() ? config_.grpo.num_generations : 1);
  auto parts =
      training_bytes(checkpoint_.config(), lora_ ? lora_->num_parameters() : 0, config_.trainer.recompute,
                     static_cast<std::int64_t>(tokens), static_cast<std::int64_t>(longest), most_at_once, threads);
  if (config_.of_prompts()) {
    const std::uint64_t weights = 4 * checkpoint_.config().num_parameters();
    const auto pages = static_cast<std::uint64_t>(num_rollout_pages(model_, config_, plan.longest_sample));
    parts.emplace_back("generator, freed before the gradients", weights + pages * model_.page_bytes(1));
    if (prompts_->reward_model() != nullptr)
      parts.emplace_back("reward model", prompts_->reward_model()->weight_bytes());
    if (config_.trainer.policy.beta > 0 && !lora_) parts.emplace_back("reference", weights);
  }
  // An id and a number an entry, in the batch and in the sample that is being read.
  if (teacher_ != nullptr) {
    const std::uint64_t at_once = std::min<std::uint64_t>(most_at_once, static_cast<std::uint64_t>(threads));
    parts.emplace_back("teacher's rows",
                       at_once * (tokens + longest) * static_cast<std::uint64_t>(teacher_->width()) * 8);
  }
  return parts;
}

std::vector<std::pair<std::string, std::string>> TrainJob::notes(const PlanNumbers& plan) const {
  const BatchOptions& batches = config_.batches;
  const bool is_bound = batches.packing || batches.batch_tokens > 0;
  return {{"steps", fmt::format("{}{} of {}", is_bound && batches.steps == 0 ? "at least " : "", steps(plan),
                                batches.batch_tokens > 0 ? fmt::format("at most {} tokens", batches.batch_tokens)
                                                         : fmt::format("{} {}", batches.global_batch,
                                                                       config_.of_pairs()     ? "pairs"
                                                                       : config_.of_prompts() ? "prompts"
                                                                                              : "sequences"))},
          {"parameters",
           lora_ ? fmt::format("{} of an adapter, beside {}", lora_->num_parameters(), layout_.num_parameters())
                 : std::to_string(layout_.num_parameters())}};
}

void TrainJob::check_complete() const {
  MAGISTER_CHECK(
      fs::is_directory(folder()), ExitCode::kInputOutput,
      "{}: is not there, though {} is complete (the trained model was moved or removed); put it back, or start "
      "over with --fresh",
      printable(folder(), 4096), printable(context_.results_path, 4096));
}

// Who uses the student must write its chats as they were learnt.
ModelOrigin TrainJob::origin() const {
  ModelOrigin origin{checkpoint_.path(), checkpoint_.tokenizer_path(), "", "{}\n"};
  const bool has_chats = chat_ || (pairs_ && pairs_->has_chats()) || (prompts_ && prompts_->has_chats());
  const bool own_template = has_chats && !checkpoint_.section().chat_template.empty();
  const bool from_gguf = !fs::is_directory(origin.tokenizer);
  const ChatSource* const source = own_template || from_gguf ? checkpoint_.chat_source() : nullptr;
  if (source == nullptr) return origin;
  origin.chat_template = source->text;
  origin.tokenizer_config =
      nlohmann::json{{"bos_token", source->bos_token}, {"eos_token", source->eos_token}}.dump(2) + "\n";
  return origin;
}

void TrainJob::put_aside() {
  if (context_.world.rank() == 0) {
    put_path_aside(states());
    put_path_aside(log_folder());
    put_path_aside(folder());
  }
  context_.world.barrier();
}

bool TrainJob::pack(const ResultsFile& running, const PlanNumbers& plan, const std::string& path,
                    const Attributes& root) {
  const TrainingData data(running, plan.num_samples, config_, nullptr, -1);
  BatchPlan batches(data.lengths(), config_.batches);
  const std::optional<std::string> state = newest_training_state(states());
  at::Tensor weights;
  const std::int64_t width = rewards_width(config_.objective());
  const TrainingCurves curves =
      state ? load_trained_weights(*state, trained(), weights, state_identity(), width) : TrainingCurves();
  const std::uint64_t num_steps = config_.updates(batches.num_steps());
  MAGISTER_CHECK(curves.step == num_steps, ExitCode::kData,
                 "{}: the newest state is of step {} of {} (the last was removed); run the same command again",
                 printable(states(), 4096), curves.step, num_steps);
  std::vector<StepRow> rows;
  for (std::uint64_t step = 0; step < curves.step; ++step) {
    StepRow& row = rows.emplace_back();
    row.loss = curves.loss[step];
    row.grad_norm = curves.grad_norm[step];
    if (config_.of_pairs())
      row.rewards = {curves.rewards[3 * step], curves.rewards[3 * step + 1], curves.rewards[3 * step + 2]};
    row.lr = static_cast<float>(config_.trainer.optimizer.lr *
                                lr_factor(config_.schedule, step, config_.warmup_steps(num_steps), num_steps));
    if (config_.of_prompts()) {
      row.policy = PolicyCurve::of(curves.rewards.data() + step * static_cast<std::uint64_t>(width));
      row.tokens = row.policy.tokens;
      continue;
    }
    for (const Samples& samples : batches.micro_batches(step)) row.tokens += data.num_labels(samples);
  }
  if (curves.skipped() > 0) log_warning("{}: {} steps were skipped", config_.name, curves.skipped());
  if (lora_) {
    write_adapter_folder(folder(), origin(), *lora_, weights);
  } else {
    write_model_folder(folder(), origin(), layout_, weights, pad_token());
  }
  std::vector<EvaluationRow> evaluations;
  for (std::uint64_t i = 0; i < curves.evaluations.size(); ++i)
    evaluations.push_back({step_of_evaluation(i, config_.evaluate->every, curves.step), curves.evaluations[i]});
  write_train_results(path, root, rows, config_.objective(), evaluations);
  return true;
}

class Train final : public Task {
 public:
  explicit Train(TrainConfig config)
      : Task("train", config.name, config.model, config.dataset), config_(std::move(config)) {}

  Head head() const override { return trains_rewards() ? Head::kAny : Head::kVocabulary; }
  bool uses_gpus() const override { return false; }
  bool trains_rewards() const override { return config_.objective() == Objective::kReward; }
  PassShape pass_shape(const PassLimits&) const override { return {config_.batches.max_length, 0, 0}; }
  TaskData data(const RunContext& context) const override;
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override {
    return std::make_unique<TrainJob>(config_, inputs);
  }

 private:
  TrainConfig config_;
};

// Of a distillation the teacher's file, whose samples are records.
TaskData Train::data(const RunContext& context) const {
  if (!config_.distills) return Task::data(context);
  const std::string path = teacher_path(config_.teacher, context);
  const Task* const maker = config_.teacher.task.empty() ? nullptr
                                                         : require_results(context, name(), "teacher.task",
                                                                           config_.teacher.task, "teacher_logits");
  if (maker != nullptr && !is_made(context, path)) return {maker->dataset(), true};
  MAGISTER_CHECK(fs::exists(path) || !fs::exists(path + ".partial"), ExitCode::kData,
                 "{}: is not complete ({}.partial stands there, and rows would be missing); finish the teacher's run "
                 "first",
                 printable(path, 4096), printable(fs::path(path).filename().string()));
  DatasetConfig dataset;
  dataset.paths = {path};
  dataset.tokens_field = "tokens";
  dataset.key_field = "key";
  return {dataset};
}

}  // namespace

TaskKind train_task() {
  return {"train",
          [](ConfigNode& node, const ExperimentConfig& experiment) -> std::unique_ptr<Task> {
            return std::make_unique<Train>(read_train_config(node, experiment));
          },
          &kTrainSchema, true};
}

}  // namespace magister
