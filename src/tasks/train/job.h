// TrainJob: a training in one run. Opening - checkpoint, data, teacher, held-out records - is in job_open.cpp, its memory in job_memory.cpp, what
// else is planned and made in job.cpp, the loop in run.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "magister/run/task.h"
#include "magister/train/checkpoint.h"
#include "magister/train/lora.h"
#include "magister/train/parameters.h"
#include "magister/train/teacher_rows.h"
#include "magister/train/training_bytes.h"
#include "tasks/train/config.h"
#include "tasks/train/evaluation.h"
#include "tasks/train/model_folder.h"
#include "tasks/train/pairs.h"
#include "tasks/train/prompts.h"
#include "tasks/train/texts.h"

namespace magister {

// The results file that is learnt from: of a distillation's teacher, or of rollouts.
std::string results_of(const TrainConfig& config, const RunContext& context);

class TrainJob final : public TaskJob {
 public:
  TrainJob(const TrainConfig& config, const TaskInputs& inputs);

  Awaited awaited() const override {
    return {.results = (config_.reads_results() && teacher_ == nullptr && values_ == nullptr) || awaits_held_out_,
            .placeholder = awaits_held_out_ || (prompts_ && prompts_->reward().is_placeholder())};
  }
  Attributes identity() override;
  std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) override;
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override;
  MemoryDemand demand(const PlanNumbers& plan) const override {
    return {
        .device = memory(plan), .host = host_memory(plan), .notes = memory_notes(plan), .fault = memory_fault(plan)};
  }
  Beside beside() const override {
    return {.needed = {{folder(), "the trained model"}}, .put_aside = {states(), log_folder(), folder()}};
  }
  void work(const ModelRun& run) override;
  Packing packing() override {
    return [this](const ResultsFile& running, const PlanNumbers& plan, const std::string& path,
                  const Attributes& root) { return pack(running, plan, path, root); };
  }

 private:
  bool pack(const ResultsFile& running, const PlanNumbers& plan, const std::string& path, const Attributes& root);
  void check_samples(const SamplePlan& plan) const;
  Notes notes(const PlanNumbers& plan) const;
  MemoryParts memory(const PlanNumbers& plan) const;
  MemoryParts host_memory(const PlanNumbers& plan) const;
  Notes memory_notes(const PlanNumbers& plan) const;
  std::string memory_fault(const PlanNumbers& plan) const;
  // That no reward is read from: the model's, else its end token, as TRL has it; -1: neither.
  TokenId pad_token();
  // runs/<name>/<task>
  std::string folder() const;
  std::string states() const { return folder() + ".checkpoints"; }
  std::string log_folder() const { return folder() + ".rollouts"; }
  StateIdentity state_identity() const;
  Attributes added_identity();
  // Whether the student learns chats whose template is its own.
  bool has_chats() const;
  void open_teachers_chats(const std::string& results);
  // Where they are not the model's own; the first ends a turn (job_ends.cpp).
  std::vector<TokenId> student_ends() const;
  void say_ends() const;
  ModelOrigin origin() const;
  std::string folder_sha256() const;
  void open_texts();
  void open_teacher(const TaskInputs& inputs);
  std::unique_ptr<TeacherFile> open_teacher_file(const std::string& path);
  // Throws Error(kConfig) where the loss cannot be learnt from such rows. place: of whom it is told.
  void check_rows(const std::string& place, const std::string& rows, bool sampled) const;
  StudentVocabulary student(bool has_text);
  void open_rollouts(const TaskInputs& inputs);
  void check_head() const;
  void open_held_out();
  bool open_held_out_teacher(DatasetConfig& dataset);
  static std::vector<SampleTokens> scored_rows(TeacherFile& teacher, const Record& record);
  std::vector<SampleTokens> encode(const Record& record);
  // Numbers of every record of the data set, in order. Collective over the world.
  std::vector<double> of_records(const std::function<std::vector<double>(const Record&)>& numbers) const;
  std::uint64_t steps(const PlanNumbers& plan) const;
  // What memory is spent on (job_memory.cpp): the fastest way that fits into what train.memory_fraction allows, and the one that takes least
  // where none does. Local; ranks need not agree, for every way has the same bits.
  TrainingShape shape_of(const PlanNumbers& plan) const;
  TrainingShape whole_shape(const PlanNumbers& plan) const;
  std::optional<TrainingShape> shape_on_gpu(const PlanNumbers& plan) const;
  MemoryParts device_bytes(const TrainingShape& shape, const PlanNumbers& plan) const;
  MemoryParts gpu_bytes(const TrainingShape& shape, const PlanNumbers& plan) const;
  MemoryParts host_bytes(const TrainingShape& shape) const;
  std::uint64_t weight_bytes() const { return 4 * checkpoint_.config().num_parameters(); }
  // Of GRPO: a second copy of the first weights.
  bool has_reference_weights() const { return config_.trainer.policy.beta > 0 && !lora_; }
  std::uint64_t allowed_host_bytes() const;
  std::uint64_t allowed_gpu_bytes() const;
  bool has_gpu_memory() const;  // its own, which ends; not the host's, whose code stands for a GPU's
  bool fits(const TrainingShape& shape, const PlanNumbers& plan) const;
  int ranks_on_host() const;
  std::uint64_t micro_batches_at_most(const PlanNumbers& plan,
                                      std::uint64_t longest) const;  // of a step, over all ranks
  // What stands on the host wherever the passes are computed.
  void add_host_parts(const TrainingShape& shape, MemoryParts& parts) const;
  const FlatLayout& trained() const { return lora_ ? static_cast<const FlatLayout&>(*lora_) : layout_; }

  const TrainConfig& config_;
  const RunContext& context_;
  Checkpoint& checkpoint_;
  const OpenModel& model_;
  int num_ranks_;
  ParameterLayout layout_;
  std::unique_ptr<TeacherFile> teacher_;  // of a distillation, once it is there
  std::unique_ptr<ValueEncoder> values_;  // of a value model, once the rollouts are there
  std::optional<LoraLayout> lora_;        // what is trained instead
  const Tokenizer* tokenizer_ = nullptr;  // null: the data set gives ids
  const Dataset& dataset_;
  std::vector<std::string> own_identity_;  // names of what identity() adds
  std::optional<TextEncoder> texts_;       // of lm
  std::optional<PairEncoder> pairs_;
  std::optional<PromptEncoder> prompts_;  // of GRPO
  std::optional<Dataset> held_out_;       // of train.evaluate
  std::unique_ptr<TeacherFile> held_out_teacher_;
  bool awaits_held_out_ = false;  // an earlier task makes it
  enum class TeachersChats { kNone, kOfOwnTemplate, kOfAnother } teachers_chats_ = TeachersChats::kNone;
  std::optional<HeldOut> held_out_records_;
};

}  // namespace magister
