// Task: one step of an experiment. What all tasks do alike - lock, identity, resume or create, the loop over units, the finish -
// is TaskRunner's (task_runner.h); a task says here what is its own: how records become samples, which columns its results
// have, how units are computed, and what remains to be done when all are there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/memory_parts.h"
#include "magister/io/dataset/dataset.h"
#include "magister/io/results/results_file.h"
#include "magister/run/quantization_loss.h"
#include "magister/run/run_context.h"
#include "magister/run/sample_plan.h"
#include "magister/run/time_estimate.h"
#include "magister/runtime/checkpoint.h"
#include "magister/runtime/length_key.h"
#include "magister/runtime/memory_plan.h"
#include "magister/runtime/notes.h"
#include "magister/runtime/pass_shape.h"

namespace magister {

class Step;
struct ModelRun;
struct OpenModel;
struct ShardContext;
class ShardWorker;

// What a task works with. The runner opens it; it is equal on every rank and outlives the job.
struct TaskInputs {
  const RunContext& context;
  Checkpoint& checkpoint;
  const OpenModel& model;
  const Dataset& dataset;
  int tp_size =
      1;  // of this rank's groups; where a job's have several sizes, the task is opened for each on every rank
  int num_ranks = 1;                 // of the job, or that are planned for
  bool data_is_placeholder = false;  // see TaskData
};

// Where a task's records come from. is_placeholder: the task that makes them has not run; only the number of these records means something.
struct TaskData {
  DatasetConfig config;
  bool is_placeholder = false;
};

// The records of `dataset`; where an earlier task makes one of its files and has not run, that task's records as a placeholder. Local.
TaskData available_data(const DatasetConfig& dataset, const RunContext& context);

// The results file of a plan, without the attributes that all tasks have.
struct TaskResults {
  std::uint64_t format_version = 1;
  std::vector<ColumnSpec> columns;
  std::string default_plot_column;  // empty: none
  std::uint64_t packed_bytes = 0;   // of a job that packs: the final file's, upper bound
  std::string made_smaller_by;      // the keys that do it, in words behind "lower": "top_k"; empty: none
  Notes notes{};                    // lines of `plan` about them
};

// What earlier tasks have not made yet.
struct Awaited {
  bool results = false;      // those that open_results() opens; lengths are not known before
  bool placeholder = false;  // the job has opened a placeholder, and is made anew when that task has run
};

// The memory that a plan needs.
struct MemoryDemand {
  std::uint64_t cache_pages = 0;  // of keys and values, that each shard keeps during the work
  MemoryParts device{};           // of a device; empty: that of forward passes with these pages
  MemoryParts host{};             // more of the host of a rank whose model is on a GPU; empty: negligible
  Notes notes{};                  // lines of `plan` about it
  std::string fault{};            // why it is more than the task may take, and what to do; empty: it is not
};

// Files and folders that belong to the results and stand beside them.
struct Beside {
  struct File {
    std::string path;
    const char* holds;  // for the message that it is missing
    const char* remedy = "put it back, or start over with --fresh";
  };
  std::vector<File> needed{};            // those of complete results
  std::vector<std::string> put_aside{};  // with --fresh
  std::function<void()> check{};         // of the needed ones: throws, the same on every rank, where they are wrong
};

// Makes the final file at `path` from that of the units, whole or not at all. root: its attributes in order, without
// num_samples and num_tokens. Called on rank 0 alone. False: the job was asked to stop meanwhile.
using Packing = std::function<bool(const ResultsFile& running, const PlanNumbers& plan, const std::string& path,
                                   const Attributes& root)>;

// What a task does in one run, once model and data are open. Every function is local unless its comment says otherwise.
class TaskJob {
 public:
  virtual ~TaskJob() = default;

  // What is not there yet of what earlier tasks make.
  virtual Awaited awaited() const { return {}; }
  // Opens the results of earlier tasks that this one reads. Called when those tasks have run.
  virtual void open_results() {}
  // Registers second models in the store of weights and returns their names there. Called before work().
  // identity: that of the results.
  virtual std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) { return {}; }
  // What decides the content besides config, checkpoint, data set, dtype, device and sizes of groups. After open_results().
  // Collective over the world.
  virtual Attributes identity() { return {}; }
  // How records become samples and units. Throws Error(kConfig) for what the model cannot do. They refer to the job.
  virtual SampleRules rules() = 0;
  // The file that holds the results of such a plan.
  virtual TaskResults results(const PlanNumbers& plan) const = 0;
  // The memory that the work needs with such a plan; by default that of forward passes.
  virtual MemoryDemand demand(const PlanNumbers& plan) const { return {}; }
  // What is decided from the row after a prompt: `model.quantization_loss` counts how often quantisation changes it.
  virtual std::function<RowDecision(std::span<const float> logits_V)> decision() const { return {}; }
  // What stands beside the results; by default nothing.
  virtual Beside beside() const { return {}; }
  // Not empty: the units are computed into <name>.running.h5, from which this makes the final file.
  virtual Packing packing() { return {}; }

  // Computes units until none is left or the job stops: each shard of this rank has a worker(). A training, whose steps
  // are no units, and a task without a model do it in another way. Collective over the group.
  virtual void work(const ModelRun& run);
  // Makes the worker of a shard, which refers to this job. Called on the shard's thread while other shards call it.
  // Collective over the group.
  virtual std::unique_ptr<ShardWorker> worker(ShardContext shard);
  // Writes the files that stand beside the results. Called on rank 0 alone when every unit is committed, before the
  // results are marked complete; a killed run calls it again. False: the job was asked to stop meanwhile.
  virtual bool report(const ResultsFile& file, const PlanNumbers& plan) { return true; }
};

// What holds of a task by its keys alone.
struct TaskTraits {
  // The head that its model must have: one over the vocabulary, one of labels (a classifier, a reward model), or any.
  enum class Head { kVocabulary, kLabels, kAny } head = Head::kVocabulary;
  std::int64_t head_labels = 0;  // of the head of a model that it trains; 0: one over the vocabulary, or it trains none
  bool runs_model = true;        // of the file; a training has weights of its own
  bool divides_records = true;   // among the ranks; a training divides its batches
  // The results file keeps key_bytes and longest_sample of PlanNumbers for a restart.
  bool keeps_widths = false;
  std::vector<std::string> needs{};  // names of tasks, besides the one that trains its model; "" is none
  Attributes announced{};            // the part of TaskJob::identity() that later tasks check before the results exist
};

class Task {
 public:
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  const std::string& kind() const { return kind_; }  // "teacher_logits"
  const std::string& name() const { return name_; }  // names the results file

  const ModelSection& model_section() const { return model_; }
  const DatasetConfig& dataset() const { return dataset_; }  // as its own keys say
  // Names, each once, of the tasks whose results or model it takes, and of those that its key `needs` names. A name may be that of a task of
  // another experiment, whose results are on disk.
  std::vector<std::string> needs() const;
  void also_needs(std::vector<std::string> names);
  const TaskTraits& traits() const { return traits_; }
  // The records that it reads now. Throws Error(kConfig) for an earlier task that does not exist. Local.
  virtual TaskData data(const RunContext& context) const { return available_data(dataset_, context); }
  // For tasks that write or score texts: how many the results hold per record, and of what kind, as far as the config tells.
  struct RecordTexts {
    std::uint64_t texts = 0;   // 0: not known before another task has run
    bool of_model = false;     // a model's scores, for which no threshold is known
    bool has_classes = false;  // the results say which texts give the same answer
    // For rollouts: the texts behind one cut, which are compared, and the least and greatest reward, where a rule gives them.
    std::uint64_t behind_a_cut = 0;
    std::optional<std::pair<double, double>> rewards{};
  };
  virtual RecordTexts record_texts(const RunContext& context) const { return {}; }
  // How much its model computes, as far as the config tells. tokens 0: the lengths are not known yet.
  virtual ModelWork model_work(double samples, double tokens) const { return {tokens}; }
  // The second models on the same devices. device: as for pass_shape().
  virtual std::vector<SecondModel> second_models(const PassLimits& device) const { return {}; }
  // Sets the lengths that the config leaves to the models to what these allow, and returns a note about each unusual one. Called whenever the
  // task is opened, before anything that depends on a length. own: the positions of its model. Local, the same on every rank.
  virtual Notes fit_lengths(const Positions& own, const PositionsOf& of) { return {}; }
  // What the experiment runs for it: by default its units (TaskRunner), for which pass_shape() and open() are given. plan_ranks: the ranks
  // of a plan. Collective over context.world.
  virtual std::unique_ptr<Step> step(RunContext context, std::optional<int> plan_ranks);
  // The size of its forward passes. device: the values of keys that are `auto`, where the device has a preference.
  virtual PassShape pass_shape(const PassLimits& device) const;
  // Opens and checks everything that is the task's own, so that faults show before any task computes. Throws what opening throws.
  // Collective over the world.
  virtual std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const;
  // Makes the files beside complete results again (a judge's summary). On one rank: context.world is alone.
  virtual void summarize(const RunContext& context) const;

 protected:
  Task(std::string kind, std::string name, ModelSection model, DatasetConfig dataset, TaskTraits traits = {})
      : kind_(std::move(kind)),
        name_(std::move(name)),
        model_(std::move(model)),
        dataset_(std::move(dataset)),
        traits_(std::move(traits)) {}

 private:
  std::string kind_;
  std::string name_;
  ModelSection model_;
  DatasetConfig dataset_;
  TaskTraits traits_;
};

}  // namespace magister
