// Opening and refusing; see job.h.
#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/parallel/gathered.h"
#include "magister/run/earlier_tasks.h"
#include "magister/run/results_on_disk.h"
#include "magister/runtime/end_tokens.h"
#include "magister/runtime/model_hash.h"
#include "magister/runtime/open_model.h"
#include "magister/runtime/tokenizer_files.h"
#include "magister/train/gradient_tree.h"
#include "magister/train/trunk.h"
#include "tasks/train/data.h"
#include "tasks/train/job.h"

namespace magister {
namespace fs = std::filesystem;

std::string results_of(const TrainConfig& config, const RunContext& context) {
  const std::string &task = config.values ? config.value.task : config.teacher.task,
                    &path = config.values ? config.value.results : config.teacher.results,
                    &place = config.values ? config.value.rollouts_place : config.teacher.place;
  const char* const kind = config.values ? "rollout" : "teacher_logits";
  return task.empty() ? results_at(path, kind, place) : results_path_of(context, task, kind, place);
}

std::string TrainJob::folder() const { return fs::path(context_.results_path).replace_extension().string(); }

TokenId TrainJob::pad_token() {
  if (!config_.of_head()) return -1;
  const std::int64_t own = checkpoint_.config().pad_token_id;
  const TokenId end = text_end_token(checkpoint_);
  return own >= 0 ? static_cast<TokenId>(own) : end;
}

TrainJob::TrainJob(const TrainConfig& config, const TaskInputs& inputs)
    : config_(config),
      context_(inputs.context),
      checkpoint_(inputs.checkpoint),
      model_(inputs.model),
      num_ranks_(inputs.num_ranks),
      layout_(config.of_head() ? with_reward_head(inputs.checkpoint.description(), config.head_labels())
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
                 config_.model.place, printable(checkpoint_.path(), 4096),
                 checkpoint_.file().dequantizes() ? "quantised" : "one file");
  MAGISTER_CHECK(model.max_position_embeddings <= 0 ||
                     config_.batches.max_length <= static_cast<std::uint64_t>(model.max_position_embeddings),
                 ExitCode::kConfig,
                 "{} is {}, but the model was made for {} positions (what it learns beyond them would be lost); choose "
                 "at most {}",
                 config_.length_place, config_.batches.max_length, model.max_position_embeddings,
                 model.max_position_embeddings);
  MAGISTER_CHECK(
      !config_.of_prompts() || config_.grpo.max_new_tokens < config_.batches.max_length, ExitCode::kConfig,
      "{}: grpo.max_new_tokens is {}, and max_length {}, as the models have positions (no token is left for a "
      "prompt); lower grpo.max_new_tokens, or leave it to the models with auto",
      config_.name, config_.grpo.max_new_tokens, config_.batches.max_length);
  MAGISTER_CHECK(
      fs::weakly_canonical(checkpoint_.path()) != fs::weakly_canonical(folder()), ExitCode::kConfig,
      "{}: model.path is {}, where this training puts its own result (it would begin from what it replaces); "
      "give the experiment or the task another name",
      config_.name, printable(checkpoint_.path(), 4096));
  if (config_.of_head()) check_head();
  if (config_.trainer.lora) {
    MAGISTER_CHECK(checkpoint_.section().adapter.empty(), ExitCode::kConfig,
                   "{}: train.adapter on a model with the adapter {} (the new one would belong to merged weights that "
                   "stand nowhere); merge the first with PEFT's merge_and_unload and name that folder as model.path",
                   config_.model.place, printable(checkpoint_.section().adapter));
    lora_.emplace(layout_, *config_.trainer.lora);
    // PEFT trains it without a word.
    const std::int64_t rank = config_.trainer.lora->config.rank, side = lora_->smallest_side();
    if (rank > side && context_.world.rank() == 0) {
      log_warning(
          "{} is {}, and the smallest side of the layers with an adapter is {} (a product of two factors has no higher "
          "rank: more costs memory and time and learns nothing more); choose at most {}",
          config_.rank_place, rank, side, side);
    }
  }
  if (config_.distills) {
    open_teacher(inputs);
  } else if (config_.values) {
    open_rollouts(inputs);
  } else {
    open_texts();
  }
  if (config_.evaluate) open_held_out();
}

// Of a distillation another teacher's file. False: an earlier task makes it, and has not run.
bool TrainJob::open_held_out_teacher(DatasetConfig& dataset) {
  const TeacherSource& source = config_.evaluate->teacher;
  const std::string path = source.task.empty() ? results_at(source.results, "teacher_logits", source.place)
                                               : results_path_of(context_, source.task, "teacher_logits", source.place);
  if (!source.task.empty()) {
    const Task* const task = require_results(context_, source.place, source.task, "teacher_logits");
    if (task != nullptr) check_rows(source.place, task->name(), announced_text(*task, "encoding") == "sampled");
    if (!is_made(context_, path)) return false;
  }
  held_out_teacher_ = open_teacher_file(path);
  dataset.paths = {path};
  dataset.tokens_field = "tokens";
  dataset.key_field = "key";
  return true;
}

void TrainJob::check_head() const {
  MAGISTER_CHECK(!config_.trainer.lora, ExitCode::kConfig,
                 "{}: train.adapter with objective: {} (an adapter's folder has no head as yet); remove train.adapter",
                 config_.rank_place, config_.values ? "value" : "reward");
  const ModelConfig& model = layout_.description().config;
  MAGISTER_CHECK(
      static_cast<std::int64_t>(model.labels.size()) == config_.head_labels(), ExitCode::kConfig,
      "{}: {} is a classifier of {} labels (this objective learns a head of {}); start from a model with such a "
      "head or with none",
      config_.model.place, printable(checkpoint_.path(), 4096), model.labels.size(), config_.head_labels());
  MAGISTER_CHECK(!config_.values || !model.encoder, ExitCode::kConfig,
                 "{}: {} is an encoder (it reads what comes after a token, too, so no row is the value of a text's "
                 "beginning); start from a decoder",
                 config_.model.place, printable(checkpoint_.path(), 4096));
}

// What is wrong with a record shows here, before a file is made and in `plan`, too.
void TrainJob::open_held_out() {
  DatasetConfig dataset = config_.evaluate->dataset;
  awaits_held_out_ =
      config_.distills ? !open_held_out_teacher(dataset) : available_data(dataset, context_).is_placeholder;
  if (awaits_held_out_) return;
  held_out_.emplace(Dataset::open(context_.world, dataset));
  MAGISTER_CHECK(held_out_->records().size() > 0, ExitCode::kData,
                 "{}: train.evaluate.dataset has no records (there is no held-out loss); check the data set, or remove "
                 "train.evaluate",
                 config_.name);
  HeldOutSource source{*held_out_, {}};
  std::optional<PairEncoder> pairs;
  if (config_.of_pairs()) {
    pairs.emplace(checkpoint_, PairRules{config_.objective(), dataset, config_.batches.max_length, config_.truncation,
                                         config_.append_eos});
    // On every rank, for the template and the end tokens become a part of the identity.
    const std::uint64_t first = held_out_->records().begin;
    held_out_->for_each({first, first + 1}, [&](Record&& record) { pairs->encode(record); });
    source.encode = [&](const Record& record) { return pairs->encode(record); };
    if (!dataset.margin_field.empty()) source.margin = [&](const Record& record) { return pairs->margin(record); };
  } else if (held_out_teacher_ != nullptr) {
    source.encode = [this](const Record& record) { return scored_rows(*held_out_teacher_, record); };
  } else {
    source.encode = [&](const Record& record) { return std::vector{texts_->encode(record, dataset)}; };
  }
  source.teacher = held_out_teacher_.get();
  source.vocab_size = checkpoint_.config().vocab_size;
  source.pad_token_id = pad_token();
  held_out_records_.emplace(context_.world, config_, source);
  const IndexRange learnt = dataset_.records(), held = held_out_->records();
  const bool overlap = learnt.begin < held.end && held.begin < learnt.end;
  if (context_.world.rank() != 0 || held_out_->sha256() != dataset_.sha256() || !overlap) return;
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
    prompts_.emplace(checkpoint_, config_, context_, dataset_);
    return;
  }
  if (config_.dataset.tokens_field.empty()) tokenizer_ = &checkpoint_.tokenizer();
  texts_.emplace(checkpoint_, config_);
}

StudentVocabulary TrainJob::student(bool has_text) {
  return {checkpoint_.config().vocab_size, has_text ? checkpoint_.tokenizer_identity() : TokenizerIdentity()};
}

// Before the teacher's task has run its model tells whether the student fits.
void TrainJob::open_teacher(const TaskInputs& inputs) {
  if (inputs.data_is_placeholder) {
    const Task& task = *require_results(context_, config_.teacher.place, config_.teacher.task, "teacher_logits");
    Checkpoint teacher(task.model_section().placeholder());
    const bool has_text = task.dataset().tokens_field.empty();
    require_same_vocabulary(config_.teacher.place + ": " + teacher.path(),
                            static_cast<std::uint64_t>(teacher.config().vocab_size),
                            has_text ? teacher.tokenizer_identity() : TokenizerIdentity(), student(has_text));
    check_rows(config_.teacher.place, task.name(), announced_text(task, "encoding") == "sampled");
    return;
  }
  const std::string path = results_of(config_, context_);
  teacher_ = open_teacher_file(path);
  open_teachers_chats(path);
}

std::unique_ptr<TeacherFile> TrainJob::open_teacher_file(const std::string& path) {
  const bool has_text = ResultsReader(path).text("tokenizer_sha256") != "none";
  auto teacher = std::make_unique<TeacherFile>(path, student(has_text));
  const std::int64_t own = checkpoint_.config().vocab_size, theirs = teacher->vocab_size();
  if (own < theirs)
    log_info(
        "{}: the teacher's table has {} rows, the student's {}, of one tokenizer: what the teacher gives to the tokens "
        "from {} on counts with what its rows do not list (distill.tail)",
        config_.name, theirs, own, own);
  check_rows(config_.name, path, teacher->sampled());
  return teacher;
}

void TrainJob::check_rows(const std::string& place, const std::string& rows, bool sampled) const {
  const DistillOptions& options = config_.trainer.distill;
  MAGISTER_CHECK(
      !sampled || options.tail == DistillOptions::Tail::kBucket, ExitCode::kConfig,
      "{}: distill.tail is set, and the rows of {} are samples (they have no tail: each draw stands for a part "
      "of it); remove distill.tail",
      place, printable(rows, 4096));
  if (options.weight == 0) return;
  try {
    const DistillRow refuses_biased_losses(options, checkpoint_.config().vocab_size, sampled);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", place, error.what()));
  }
}

// Before the rollouts' task has run its model tells whether the tokenizers are one.
void TrainJob::open_rollouts(const TaskInputs& inputs) {
  tokenizer_ = &checkpoint_.tokenizer();
  pad_token();  // reads what it reads before the identity is made
  if (!inputs.data_is_placeholder) {
    values_ = std::make_unique<ValueEncoder>(config_.value, results_of(config_, context_), config_.batches.max_length,
                                             checkpoint_.tokenizer_identity());
    return;
  }
  const Task& task = *require_results(context_, config_.value.rollouts_place, config_.value.task, "rollout");
  check_rollouts(config_.value, task.record_texts(context_));
  Checkpoint policy(task.model_section().placeholder());
  MAGISTER_CHECK(same_tokenizer(policy.tokenizer_identity(), checkpoint_.tokenizer_identity()), ExitCode::kConfig,
                 "{} names {}, whose model has another tokenizer (its tokens mean other texts); name a model with the "
                 "same tokenizer",
                 config_.value.rollouts_place, printable(config_.value.task));
}

// The file itself is the data set, whose sha256 stands in the identity of every task.
Attributes TrainJob::identity() {
  Attributes attributes = added_identity();
  const auto copied = [this] {
    return files_beside_weights(checkpoint_.tokenizer_path(), lora_ ? "" : checkpoint_.path());
  };
  if (model_.gpu) attributes.emplace_back("gpu_passes", std::string(kGpuPasses));
  attributes.emplace_back("copied_files_sha256", small_files_sha256(context_.world, copied, context_.stop_poll()));
  leave_if_stopped(context_.world, context_.stop);
  own_identity_.clear();
  for (const auto& [name, value] : attributes) own_identity_.push_back(name);
  return attributes;
}

std::vector<std::string> TrainJob::keep_weights(WeightStore& store, const Attributes& identity) {
  std::vector<std::string> names;
  if (prompts_) prompts_->reward().keep_weights(store, identity, names);
  return names;
}

Attributes TrainJob::added_identity() {
  if (prompts_) {
    Attributes attributes = {{"objective", std::string("grpo")}};
    for (auto& attribute : prompts_->reward().identity(context_.world, context_.stop_poll()))
      attributes.push_back(std::move(attribute));
    leave_if_stopped(context_.world, context_.stop);
    return attributes;
  }
  Attributes attributes;
  if (config_.of_pairs()) {
    attributes = {{"objective", std::string(config_.objective() == Objective::kDpo ? "dpo" : "reward")}};
  } else if (config_.distills) {
    attributes = {{"objective", std::string("distill")},
                  {"teacher_model_sha256", teacher_->model_sha256()},
                  {"teacher_encoding", teacher_->encoding()}};
  }
  if (config_.values) attributes = {{"objective", std::string("value")}};
  if (held_out_) {
    attributes.emplace_back("evaluate_dataset_sha256", held_out_->sha256());
    attributes.emplace_back("evaluate_dataset_format", held_out_->formats());
  }
  return attributes;
}

// What a state must share with this run: the identity of the working file, which holds the plan, too, and all that identity() adds.
StateIdentity TrainJob::state_identity() const {
  const std::string running = folder() + ".running.h5.partial";
  std::string all;
  for (const char* const name : {"config_sha256", "model_sha256", "tokenizer_sha256", "chat_template_sha256",
                                 "end_tokens", "dataset_sha256", "dataset_format", "plan_sha256"})
    all += ResultsFile::read_text(running, name) + "\n";
  if (const std::string rules = checkpoint_.rules_sha256(); !rules.empty()) all += rules + "\n";
  // Two slices of texts of one length have one plan.
  const IndexRange records = dataset_.records();
  all += fmt::format("records {} to {} of {}\n", records.begin, records.end, dataset_.num_source_records());
  // Results of the two kinds of devices agree within rounding, not to the bit.
  if (model_.gpu) all += fmt::format("gpu {}\n", kGpuPasses);
  for (const std::string& name : own_identity_) all += ResultsFile::read_text(running, name.c_str()) + "\n";
  return {sha256_hex(all), ResultsFile::read_text(running, "experiment")};
}

// Every row of a teacher's file is checked here, before the first step.
std::vector<SampleTokens> TrainJob::scored_rows(TeacherFile& teacher, const Record& record) {
  TeacherSample sample = teacher.sample(record.source_index);
  std::vector<std::uint8_t> learnt(sample.ids.size(), 0);
  for (std::size_t t = 0; t + 1 < learnt.size(); ++t) learnt[t + 1] = sample.valid[t];
  return {{std::move(sample.ids), std::move(learnt)}};
}

std::vector<SampleTokens> TrainJob::encode(const Record& record) {
  if (pairs_) return pairs_->encode(record);
  if (values_) return values_->encode(record);
  if (prompts_) return {prompts_->encode(record)};
  if (teacher_ != nullptr) return scored_rows(*teacher_, record);
  return {texts_->encode(record, config_.dataset)};
}

// Every rank reads its part of the records. Collective over the world.
std::vector<double> TrainJob::of_records(const std::function<std::vector<double>(const Record&)>& numbers) const {
  const IndexRange all = dataset_.records();
  const IndexRange own = micro_batches_of(all.size(), context_.world.rank(), context_.world.size());
  std::vector<double> all_numbers;
  dataset_.for_each({all.begin + own.begin, all.begin + own.end}, [&](Record&& record) {
    const std::vector<double> some = numbers(record);
    all_numbers.insert(all_numbers.end(), some.begin(), some.end());
  });
  return gathered(context_.world, all_numbers);
}

void TrainJob::check_samples(const SamplePlan& plan) const {
  check_learns(config_, plan.num_items, plan.num_samples / samples_an_item(config_), plan.longest_sample,
               teacher_ != nullptr ? teacher_->path() : "");
  say_ends();
}

SampleRules TrainJob::rules() {
  SampleRules rules;
  rules.max_length = config_.batches.max_length;
  rules.overflow = Overflow::kTruncate;
  rules.unit_tokens = 1 << 20;
  rules.vocab_size = checkpoint_.config().vocab_size;
  rules.tokenizer = tokenizer_;
  rules.length_key = "train.max_length";
  rules.check = [this](const SamplePlan& plan) { check_samples(plan); };
  rules.marks_assistant = config_.marks();
  rules.item_samples = samples_an_item(config_);
  rules.takes_part = [this](std::span<const TokenId> ids, std::span<const std::uint8_t> assistant) {
    return learnt_tokens(config_, ids.size(), assistant) > 0;
  };
  if (pairs_) {
    rules.group_samples = 2;
    rules.unit_tokens = 16384;  // between two looks whether to stop, while the reference is asked
  }
  if (config_.of_prompts()) {
    rules.shown_as = "prompt";
    rules.max_length = config_.longest_prompt();
    rules.overflow = Overflow::kError;
    rules.may_cut = false;
    rules.min_length = 1;
    rules.length_key = "train.max_length less grpo.max_new_tokens";
  }
  if (values_ != nullptr) rules.group_samples = values_->samples_a_record();
  if (pairs_ || prompts_ || teacher_ != nullptr || values_ != nullptr || (texts_ && texts_->changes_texts()))
    rules.encode = [this](const Record& record) { return encode(record); };
  if (texts_ && !config_.dataset.messages_field.empty()) rules.shown_as = "chat";
  return rules;
}

}  // namespace magister
