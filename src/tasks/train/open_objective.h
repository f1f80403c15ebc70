// OpenObjective: an objective in one run. It has the data (encoders, a teacher's file, rollouts), makes the
// micro-batches of the steps and answers everything that depends on the objective.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/io/results/results_file.h"
#include "magister/parallel/communicator.h"
#include "magister/run/sample_plan.h"
#include "magister/run/shard_model.h"
#include "magister/run/task.h"
#include "magister/train/trainer.h"
#include "magister/train/training_bytes.h"
#include "tasks/train/config.h"
#include "tasks/train/held_out.h"
#include "tasks/train/samples.h"
#include "tasks/train/student_ends.h"

namespace magister {

// The inputs of the steps.
struct StepInputs {
  const ModelRun& run;
  const Communicator& world;
  const TrainingSamples& samples;
  Trainer& trainer;
  HeldOut* held_out;           // null: there are no held-out records
  std::function<bool()> stop;  // all ranks get the same answer
};

// The micro-batches of a step: the items of those of all ranks, and this rank's own.
struct StepBatches {
  std::vector<Samples> items;
  std::vector<MicroBatch> own;
};

class OpenObjective {
 public:
  // config and inputs are kept by reference.
  OpenObjective(const TrainConfig& config, const TaskInputs& inputs)
      : config_(config), context_(inputs.context), checkpoint_(inputs.checkpoint), dataset_(inputs.dataset) {}
  OpenObjective(const OpenObjective&) = delete;
  OpenObjective& operator=(const OpenObjective&) = delete;
  virtual ~OpenObjective() = default;

  // These four serve TaskJob: awaited(), keep_weights(), identity().
  virtual bool inputs_exist() const { return true; }
  virtual bool awaits_earlier() const { return false; }
  virtual std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) { return {}; }
  virtual Attributes identity();
  // Adds the rules of the objective; they refer to this object.
  virtual void add_rules(SampleRules& rules) = 0;
  // Throws Error(kData) if no item has anything to learn from. longest: length of the longest sample. Local.
  virtual void check_learns(std::uint64_t num_learnt, std::uint64_t num_items, std::uint64_t longest) const;
  virtual LearntEnds ends() const { return {}; }
  // Columns that the objective adds to the working file.
  virtual std::vector<ColumnSpec> working_columns(std::uint64_t num_samples) const { return {}; }
  // Adds the host memory that the objective needs, by part. weights: bytes of a second copy of the model.
  virtual void add_host_memory(const TrainingShape& shape, std::uint64_t weights, MemoryParts& parts) const {}

  // Sets dataset to the source of the records of train.evaluate. False: an earlier task makes them and has not run.
  virtual bool find_held_out(DatasetConfig& dataset);
  // The source of those records, without vocab_size and pad_token_id. dataset is kept by reference.
  virtual HeldOutSource held_out(const Dataset& records, const DatasetConfig& dataset);

  // Called before a state is loaded, while the trainer has its first weights. False: the job was asked to stop. This
  // and batches() may be collective over the world.
  virtual bool begin_steps(const StepInputs& inputs) { return true; }
  // The micro-batches of an update (from 0). planned: its items, by micro-batch. nullopt: the job was asked to stop.
  virtual std::optional<StepBatches> batches(const StepInputs& inputs, std::uint64_t update,
                                             std::vector<Samples> planned);
  // The numbers of the last step, CurveSet::width of them.
  virtual std::vector<float> curve(const StepResult& result) const;
  // Lines of the log about the last step; adds the same to its event in the run log.
  virtual std::vector<std::string> describe(const StepResult& result, nlohmann::ordered_json& event) const;
  // Drops all references to the inputs of the steps.
  virtual void end_steps() {}

 protected:
  virtual MicroBatch micro_batch(const TrainingSamples& samples, const Samples& items) const {
    return samples.micro_batch(items);
  }
  // Numbers of every record of the data set, in order; every rank reads its share. Collective over the world.
  std::vector<double> numbers_of_records(const std::function<std::vector<double>(const Record&)>& numbers) const;

  const TrainConfig& config_;
  const RunContext& context_;
  Checkpoint& checkpoint_;
  const Dataset& dataset_;
};

template <typename Open>
std::unique_ptr<OpenObjective> open_as(const TrainConfig& config, const TaskInputs& inputs) {
  return std::make_unique<Open>(config, inputs);
}

// The pad token of a reward model, from which no reward is read: that of the model, else its end token, as in TRL. -1:
// the model has neither, or no head is trained.
TokenId reward_pad_token(Checkpoint& checkpoint, const TrainConfig& config);
// Folder of logged texts: the path of the results with the extension .rollouts.
std::string rollout_folder(const RunContext& context);

}  // namespace magister
