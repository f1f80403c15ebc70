// Opening and refusing; see job.h.
#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/parallel/gathered.h"
#include "magister/run/earlier_tasks.h"
#include "magister/run/open_model.h"
#include "magister/run/results_on_disk.h"
#include "magister/train/gradient_tree.h"
#include "tasks/train/job.h"

namespace magister {
namespace fs = std::filesystem;

std::string teacher_path(const TeacherSource& teacher, const RunContext& context) {
  return teacher.task.empty() ? teacher.results : results_path_of(context, teacher.task);
}

std::string TrainJob::folder() const { return fs::path(context_.results_path).replace_extension().string(); }

TokenId TrainJob::pad_token() {
  if (config_.objective() != Objective::kReward) return -1;
  const std::int64_t own = checkpoint_.config().pad_token_id;
  const std::vector<TokenId>& ends = checkpoint_.end_tokens();
  return own >= 0 ? static_cast<TokenId>(own) : ends.empty() ? -1 : ends.front();
}

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
  // What is wrong with a record shows here, before a file is made and in `plan`, too.
  held_out_records_.emplace(context_.world, *held_out_, config_, checkpoint_.config().vocab_size,
                            [this](const Record& record) { return texts_->encode(record, config_.evaluate->dataset); });
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
    prompts_.emplace(checkpoint_, config_, context_);
    return;
  }
  if (config_.dataset.tokens_field.empty()) tokenizer_ = &checkpoint_.tokenizer();
  texts_.emplace(checkpoint_, config_);
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
  Attributes attributes = added_identity();
  own_identity_.clear();
  for (const auto& [name, value] : attributes) own_identity_.push_back(name);
  return attributes;
}

Attributes TrainJob::added_identity() {
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

// What a state must share with this run: the identity of the working file, which holds the plan, too, and all that identity() adds.
std::string TrainJob::state_identity() const {
  const std::string running = folder() + ".running.h5.partial";
  std::string all;
  for (const char* const name : {"config_sha256", "model_sha256", "tokenizer_sha256", "chat_template_sha256",
                                 "end_tokens", "dataset_sha256", "dataset_format", "plan_sha256"})
    all += ResultsFile::read_text(running, name) + "\n";
  for (const std::string& name : own_identity_) all += ResultsFile::read_text(running, name.c_str()) + "\n";
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
  return {texts_->encode(record, config_.dataset)};
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
  if (pairs_ || prompts_ || teacher_ != nullptr || (texts_ && texts_->changes_texts()))
    rules.encode = [this](const Record& record) { return encode(record); };
  return rules;
}

}  // namespace magister
