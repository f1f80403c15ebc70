// OpenObjective: in one run, what an objective learns from - encoders, a teacher's file, rollouts -, what depends on
// it, and the micro-batches that it makes of it for the steps.
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

// What steps are made of.
struct StepInputs {
  const ModelRun& run;
  const Communicator& world;
  const TrainingSamples& samples;
  Trainer& trainer;
  HeldOut* held_out;           // null: nothing is held out
  std::function<bool()> stop;  // agreed by all ranks
};

// Of a step's micro-batches over all ranks the items, and this rank's own.
struct StepBatches {
  std::vector<Samples> items;
  std::vector<MicroBatch> own;
};

class OpenObjective {
 public:
  // All is kept by reference.
  OpenObjective(const TrainConfig& config, const TaskInputs& inputs)
      : config_(config), context_(inputs.context), checkpoint_(inputs.checkpoint), dataset_(inputs.dataset) {}
  OpenObjective(const OpenObjective&) = delete;
  OpenObjective& operator=(const OpenObjective&) = delete;
  virtual ~OpenObjective() = default;

  // See TaskJob: inputs_exist(), awaits_earlier(), keep_weights(), identity().
  virtual bool inputs_exist() const { return true; }
  virtual bool awaits_earlier() const { return false; }
  virtual std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) { return {}; }
  virtual Attributes identity();
  // Adds what is its own; refers to this.
  virtual void add_rules(SampleRules& rules) = 0;
  // Throws Error(kData) with what to do where no item has anything to learn from. longest: of all samples. Local.
  virtual void check_learns(std::uint64_t num_learnt, std::uint64_t num_items, std::uint64_t longest) const;
  virtual LearntEnds ends() const { return {}; }
  // Columns of the working file that are its own.
  virtual std::vector<ColumnSpec> working_columns(std::uint64_t num_samples) const { return {}; }
  // Of the host's memory, by part; weights: those of another copy of the model.
  virtual void add_host_memory(const TrainingShape& shape, std::uint64_t weights, MemoryParts& parts) const {}

  // The records of train.evaluate: dataset becomes what they are read from. False: an earlier task makes it, and has
  // not run.
  virtual bool find_held_out(DatasetConfig& dataset);
  // Those records, without vocab_size and pad_token_id. dataset is kept by reference.
  virtual HeldOutSource held_out(const Dataset& records, const DatasetConfig& dataset);

  // Before the steps, with the trainer as it was made. False: the job was asked to stop. These two may be collective
  // over the world.
  virtual bool begin_steps(const StepInputs& inputs) { return true; }
  // Of an update, from 0. planned: items by micro-batch. nullopt: the job was asked to stop.
  virtual std::optional<StepBatches> batches(const StepInputs& inputs, std::uint64_t update,
                                             std::vector<Samples> planned);
  // CurveSet::width numbers of the step that was done last.
  virtual std::vector<float> curve(const StepResult& result) const;
  // Lines about it; what its event in the log has is added.
  virtual std::vector<std::string> describe(const StepResult& result, nlohmann::ordered_json& event) const;
  // Nothing of the inputs is referred to behind this.
  virtual void end_steps() {}

 protected:
  virtual MicroBatch micro_batch(const TrainingSamples& samples, const Samples& items) const {
    return samples.micro_batch(items);
  }
  // Numbers of every record of the data set, in order: every rank reads its part. Collective over the world.
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

// That no reward is read from: the model's, else its end token, as TRL has it; -1: neither, or no head is trained.
TokenId reward_pad_token(Checkpoint& checkpoint, const TrainConfig& config);
// <results>.rollouts: where texts go that are logged.
std::string rollout_folder(const RunContext& context);

}  // namespace magister
