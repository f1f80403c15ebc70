// TrainJob: a training in one run. open.cpp opens the checkpoint, the source of the samples and the held-out records;
// job_memory.cpp plans the memory; job.cpp plans and writes the results; run.h has the loop over the steps, and
// open_objective.h what depends on the objective.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "magister/run/task.h"
#include "magister/train/batch_plan.h"
#include "magister/train/checkpoint.h"
#include "magister/train/lora.h"
#include "magister/train/parameters.h"
#include "magister/train/training_bytes.h"
#include "tasks/train/columns.h"
#include "tasks/train/config.h"
#include "tasks/train/held_out.h"
#include "tasks/train/model_folder.h"
#include "tasks/train/open_objective.h"
#include "tasks/train/samples.h"

namespace magister {

class TrainJob final : public TaskJob {
 public:
  TrainJob(const TrainConfig& config, const TaskInputs& inputs);

  Awaited awaited() const override {
    return {.results = !open_->inputs_exist() || awaits_held_out_,
            .placeholder = awaits_held_out_ || open_->awaits_earlier()};
  }
  Attributes identity() override;
  std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) override {
    return open_->keep_weights(store, identity);
  }
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override;
  MemoryDemand demand(const PlanNumbers& plan) const override {
    return {.device = memory(plan),
            .host = host_memory(plan),
            .notes = memory_notes(shape_of(plan), plan),
            .fault = memory_fault(plan)};
  }
  SideFiles side_files() const override {
    return {.needed = {{folder(), "the trained model"}}, .put_aside = {states(), rollout_folder(context_), folder()}};
  }
  void check_left_over(const Attributes& attributes) const override;
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
  Notes memory_notes(const TrainingShape& chosen, const PlanNumbers& plan) const;
  std::string memory_fault(const PlanNumbers& plan) const;
  // runs/<name>/<task>
  std::string folder() const;
  std::string states() const { return folder() + ".checkpoints"; }
  // A state belongs to the results whose working file has these attributes. The second one reads the file.
  using AttributeText = std::function<std::string(const char* name)>;
  StateIdentity state_identity(const AttributeText& text) const;
  StateIdentity state_identity() const;
  ModelOrigin origin() const;
  std::string folder_sha256() const;
  void check_model(int tp_size) const;
  void check_head() const;
  void open_held_out();
  void open_adapter();
  std::uint64_t steps(const PlanNumbers& plan) const;
  std::vector<StepRow> step_rows(const TrainingCurves& curves, const TrainingSamples& samples,
                                 BatchPlan& batches) const;
  std::vector<EvaluationRow> evaluation_rows(const TrainingCurves& curves) const;
  // How memory is used (job_memory.cpp): the fastest shape that train.memory_fraction allows, or the smallest one if
  // none fits. Local; ranks may choose different shapes, since every shape gives the same bits.
  TrainingShape shape_of(const PlanNumbers& plan) const;
  TrainingShape whole_shape(const PlanNumbers& plan) const;
  std::optional<TrainingShape> shape_on_gpu(const PlanNumbers& plan) const;
  // Local; for `plan` and until the ranks have agreed it is what this rank knows.
  bool gpus_may_exchange() const;
  // The same without the copy of a state, which takes only what is left.
  TrainingShape shape_of_steps(const PlanNumbers& plan) const;
  // True: steps follow on states, and a copy of these is worth its memory.
  bool writes_beside_steps(const TrainingShape& shape, const PlanNumbers& plan) const;
  // Returns the shape with which this rank computes, from one reading of free memory. No other is told or checked: a
  // later reading may differ. Collective over the world.
  TrainingShape agreed_shape(const PlanNumbers& plan);
  MemoryParts device_bytes(const TrainingShape& shape, const PlanNumbers& plan) const;
  MemoryParts gpu_bytes(const TrainingShape& shape, const PlanNumbers& plan) const;
  MemoryParts host_bytes(const TrainingShape& shape) const;
  std::uint64_t weight_bytes() const { return 4 * checkpoint_.config().num_parameters(); }
  std::uint64_t allowed_host_bytes() const;
  std::uint64_t allowed_gpu_bytes() const;
  bool has_gpu_memory() const;  // true: a GPU with memory of its own; false for GPU code that runs on the host
  bool fits(const TrainingShape& shape, const PlanNumbers& plan) const;
  int ranks_on_host() const;
  std::uint64_t micro_batches_at_most(const PlanNumbers& plan,
                                      std::uint64_t longest) const;  // upper bound for a step, over all ranks
  // Adds what is in host memory even if a GPU runs the passes.
  void add_host_parts(const TrainingShape& shape, MemoryParts& parts) const;
  const FlatLayout& trained() const { return lora_ ? static_cast<const FlatLayout&>(*lora_) : layout_; }

  const TrainConfig& config_;
  const RunContext& context_;
  Checkpoint& checkpoint_;
  const OpenModel& model_;
  int num_ranks_;
  bool all_may_exchange_ = true;  // false: a rank has no memory for it
  ParameterLayout layout_;
  std::optional<LoraLayout> lora_;  // the adapter, which is trained instead of layout_
  const Dataset& dataset_;
  std::vector<std::string> own_identity_;  // names of the attributes that identity() adds
  std::unique_ptr<OpenObjective> open_;
  std::optional<Dataset> held_out_;  // the records of train.evaluate
  bool awaits_held_out_ = false;     // true: an earlier task that has not run makes them
  std::optional<HeldOut> held_out_records_;
};

}  // namespace magister
