// `distill`: a student learns from a teacher's rows. The results of task teacher_logits hold them and the tokens. Every
// row is checked when the samples are made, before the first step, and is read from that file when its micro-batch is
// computed.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/results/reader.h"
#include "magister/run/earlier_tasks.h"
#include "magister/tasks/teacher_logits/teacher_file.h"
#include "tasks/train/columns.h"
#include "tasks/train/objective.h"
#include "tasks/train/open_objective.h"

namespace magister {
namespace {

constexpr const char* kTeacherTask = "teacher_logits";

// Reads the teacher's rows of the first lengths[i] tokens of samples[i], one sample after the other. Any thread.
void read_teacher_rows(TeacherFile& teacher, const Samples& samples, const std::vector<std::uint32_t>& lengths,
                       HeadLossTargets& targets) {
  const std::int64_t T = targets.labels_T.size(0), W = teacher.width();
  targets.sampled = teacher.sampled();
  targets.teacher_vocab_size = teacher.vocab_size();
  targets.teacher_ids_TK = at::empty({T, W}, at::kInt);
  targets.teacher_logprobs_TK = at::empty({T, W}, at::kFloat);
  targets.teacher_tail_T = at::empty({T}, at::kFloat);
  targets.teacher_entropy_T = at::empty({T}, at::kFloat);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const TeacherSample rows = teacher.sample(samples[i]);
    const auto length = static_cast<std::int64_t>(lengths[i]);
    std::copy_n(rows.top_ids.begin(), length * W, targets.teacher_ids_TK.data_ptr<std::int32_t>() + row * W);
    std::copy_n(rows.top_logprobs.begin(), length * W, targets.teacher_logprobs_TK.data_ptr<float>() + row * W);
    std::copy_n(rows.tail_mass.begin(), length, targets.teacher_tail_T.data_ptr<float>() + row);
    std::copy_n(rows.entropy.begin(), length, targets.teacher_entropy_T.data_ptr<float>() + row);
    row += length;
  }
}

// The sample of a record; a token is learnt if the row before it was scored.
std::vector<SampleTokens> scored_rows(TeacherFile& teacher, const Record& record) {
  TeacherSample sample = teacher.sample(record.source_index);
  std::vector<std::uint8_t> learnt(sample.ids.size(), 0);
  for (std::size_t t = 0; t + 1 < learnt.size(); ++t) learnt[t + 1] = sample.valid[t];
  return {{std::move(sample.ids), std::move(learnt)}};
}

class OpenDistill final : public OpenObjective {
 public:
  OpenDistill(const TrainConfig& config, const TaskInputs& inputs) : OpenObjective(config, inputs) {
    inputs.data_is_placeholder ? check_task() : open_results();
  }

  bool inputs_exist() const override { return teacher_ != nullptr; }
  Attributes identity() override;
  LearntEnds ends() const override {
    return {.chats = chats_ == Chats::kOfOwnTemplate, .chats_of_another = chats_ == Chats::kOfAnother};
  }
  void add_rules(SampleRules& rules) override {
    if (teacher_ != nullptr) rules.encode = [this](const Record& record) { return scored_rows(*teacher_, record); };
  }
  void check_learns(std::uint64_t num_learnt, std::uint64_t num_items, std::uint64_t longest) const override;
  void add_host_memory(const TrainingShape& shape, std::uint64_t, MemoryParts& parts) const override;
  bool find_held_out(DatasetConfig& dataset) override;
  HeldOutSource held_out(const Dataset& records, const DatasetConfig& dataset) override;

 private:
  enum class Chats { kNone, kOfOwnTemplate, kOfAnother };

  void check_task() const;
  void open_results();
  std::unique_ptr<TeacherFile> open_file(const std::string& path);
  // Throws Error(kConfig) if the loss cannot use such rows. place: the place that the message names.
  void check_rows(const std::string& place, const std::string& rows, bool sampled) const;
  StudentVocabulary student(bool has_text) const {
    return {checkpoint_.config().vocab_size, has_text ? checkpoint_.tokenizer_identity() : TokenizerIdentity()};
  }
  MicroBatch micro_batch(const TrainingSamples& samples, const Samples& items) const override;

  std::unique_ptr<TeacherFile> teacher_;  // null: an earlier task has not written it yet
  std::unique_ptr<TeacherFile> held_out_teacher_;
  Chats chats_ = Chats::kNone;
};

// Checks the student against the model of the teacher's task, which has not run.
void OpenDistill::check_task() const {
  const ResultsSource& source = config_.source;
  const Task& task = *require_results(context_, source.place, source.task, kTeacherTask);
  Checkpoint teacher(task.model_section().placeholder());
  const bool has_text = task.dataset().tokens_field.empty();
  require_same_vocabulary(source.place + ": " + teacher.path(), static_cast<std::uint64_t>(teacher.config().vocab_size),
                          has_text ? teacher.tokenizer_identity() : TokenizerIdentity(), student(has_text));
  check_rows(source.place, task.name(), announced_text(task, "encoding") == "sampled");
}

// Opens the file, and reads all that decides the end tokens of the student, which must be known before the identity is
// made.
void OpenDistill::open_results() {
  const std::string path = config_.source.path(kTeacherTask, context_);
  teacher_ = open_file(path);
  const ResultsReader file(path);
  if (file.attribute("chat_template_sha256") == nullptr) return;
  const std::string taught = file.text("chat_template_sha256");
  if (taught == "none") return;
  const ChatSource* const own = checkpoint_.chat_source();
  checkpoint_.end_tokens();
  chats_ = own != nullptr && own->sha256() == taught ? Chats::kOfOwnTemplate : Chats::kOfAnother;
}

std::unique_ptr<TeacherFile> OpenDistill::open_file(const std::string& path) {
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

void OpenDistill::check_rows(const std::string& place, const std::string& rows, bool sampled) const {
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

Attributes OpenDistill::identity() {
  Attributes attributes = OpenObjective::identity();
  attributes.emplace_back("teacher_model_sha256", teacher_->model_sha256());
  attributes.emplace_back("teacher_encoding", teacher_->encoding());
  return attributes;
}

void OpenDistill::check_learns(std::uint64_t num_learnt, std::uint64_t num_items, std::uint64_t longest) const {
  MAGISTER_CHECK(num_learnt > 0, ExitCode::kData,
                 "{}: none of the {} samples of {} has a row to learn from (the teacher scored none that a token "
                 "follows{}); check the teacher's file with `magister info`",
                 config_.name, num_items, printable(teacher_ != nullptr ? teacher_->path() : "", 4096),
                 config_.batches.max_length < longest ? ", or train.max_length cuts them off" : "");
}

// An id and a number for each entry, in the batch and in the sample that is being read.
void OpenDistill::add_host_memory(const TrainingShape& shape, std::uint64_t, MemoryParts& parts) const {
  if (teacher_ == nullptr) return;
  const std::uint64_t at_once =
      std::min<std::uint64_t>(shape.own_micro_batches, static_cast<std::uint64_t>(shape.num_threads));
  parts.emplace_back("teacher's rows", at_once * static_cast<std::uint64_t>(shape.tokens + shape.longest) *
                                           static_cast<std::uint64_t>(teacher_->width()) * 8);
}

// The held-out records are in another teacher's file.
bool OpenDistill::find_held_out(DatasetConfig& dataset) {
  const ResultsSource& source = config_.evaluate->teacher;
  const std::string path = source.path(kTeacherTask, context_);
  if (!source.task.empty()) {
    const Task* const task = require_results(context_, source.place, source.task, kTeacherTask);
    if (task != nullptr) check_rows(source.place, task->name(), announced_text(*task, "encoding") == "sampled");
    if (!is_made(context_, path)) return false;
  }
  held_out_teacher_ = open_file(path);
  dataset.paths = {path};
  dataset.tokens_field = "tokens";
  dataset.key_field = "key";
  return true;
}

HeldOutSource OpenDistill::held_out(const Dataset& records, const DatasetConfig&) {
  HeldOutSource source{records, [this](const Record& record) { return scored_rows(*held_out_teacher_, record); }};
  source.key = "teacher";
  if (config_.trainer.distill.weight > 0) {
    source.read_teacher = [this](const Samples& samples, const std::vector<std::uint32_t>& lengths,
                                 HeadLossTargets& targets) {
      read_teacher_rows(*held_out_teacher_, samples, lengths, targets);
    };
  }
  return source;
}

MicroBatch OpenDistill::micro_batch(const TrainingSamples& samples, const Samples& items) const {
  MicroBatch batch = OpenObjective::micro_batch(samples, items);
  if (config_.trainer.distill.weight == 0) return batch;
  std::vector<std::uint32_t> lengths;
  for (const std::uint64_t item : items) lengths.push_back(samples.lengths()[item]);
  batch.read_teacher = [this, items, lengths = std::move(lengths)](HeadLossTargets& targets) {
    read_teacher_rows(*teacher_, items, lengths, targets);
  };
  return batch;
}

// Reads the keys of the teacher's file and of the loss. The losses have the names of the literature; TRL's GKD calls js
// the generalised JS.
void read_distill_keys(ConfigNode& task, const ExperimentConfig& experiment, TrainConfig& config) {
  const bool is_ours = config.trainer.objective == ObjectiveKind::kDistill;
  ConfigNode node = task.only_if(
      is_ours,
      "is given with another objective (only a distillation has a teacher); set objective: distill, or remove it");
  ConfigNode teacher = node.section("teacher");
  const ResultsSource source = read_results_source(teacher, is_ours, experiment, kOneTeacher);
  if (is_ours) config.source = source;
  using Loss = DistillOptions::Loss;
  using Tail = DistillOptions::Tail;
  DistillOptions& options = config.trainer.distill;
  ConfigNode section = node.section("distill");
  const std::string loss = section.choice("loss", {"forward_kl", "reverse_kl", "js", "total_variation"}, "forward_kl");
  options.loss = loss == "reverse_kl"        ? Loss::kReverseKl
                 : loss == "js"              ? Loss::kJs
                 : loss == "total_variation" ? Loss::kTotalVariation
                                             : Loss::kForwardKl;
  const std::string tail =
      section.choice("tail", {"bucket", "none", "renormalised", "renormalised_both", "gold"}, "bucket");
  options.tail = tail == "none"                ? Tail::kNone
                 : tail == "renormalised"      ? Tail::kRenormalised
                 : tail == "renormalised_both" ? Tail::kRenormalisedBoth
                 : tail == "gold"              ? Tail::kGold
                                               : Tail::kBucket;
  ConfigNode of_js = section.only_if(
      loss == "js", "is given without `loss: js` (only that mixes two distributions); set the loss or remove it");
  options.beta = of_js.number("beta", 0.5, 0, 1);
  options.temperature = section.number("temperature", 1.0, 0.01, 100);
  options.weight = section.number("weight", 1.0, 0, 1e6);
  options.lm_weight = section.number("lm_weight", 0.0, 0, 1e6);
  if (is_ours && options.weight == 0 && options.lm_weight == 0)
    section.reject("weight", "0, and so is lm_weight (nothing would be learnt); raise one of them");
  section.also_called("lm_weight", {"ce_weight", "cross_entropy_weight"});
  section.also_called("tail", {"missing_probability_handling"});
  if (!is_ours) {
    options = {};
    options.weight = 0;
    options.lm_weight = 1;
  }
}

constexpr CurveColumn kHeldOutRows[] = {kHeldOutLossCurve};

}  // namespace

// There is no perplexity of a divergence.
constinit const CurveSet kHeldOutRowCurves = {
    .width = 1,
    .columns = kHeldOutRows,
    .describe_held_out = [](const Evaluation&, std::uint64_t num_labels, nlohmann::ordered_json&) {
      return fmt::format(" of {} tokens", num_labels);
    }};

constinit const Objective kDistillObjective = {
    .kind = ObjectiveKind::kDistill,
    .name = "distill",
    .default_lr = 5e-5,
    .learns_from = kTeacherTask,
    .refused = {.dataset = "is given with objective: distill (the teacher's file holds the tokens that it has read); "
                           "remove it",
                .append_eos = "is given with objective: distill (the teacher's file holds the tokens as they are); "
                              "remove it"},
    .held_out_curves = &kHeldOutRowCurves,
    .read = read_distill_keys,
    .marks = [](const TrainConfig&) { return "1: the teacher has scored the row before it, which is learnt"; },
    .open = open_as<OpenDistill>};

}  // namespace magister
