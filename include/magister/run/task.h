// Task: one step of an experiment. TaskRunner (task_runner.h) does what all tasks share: lock, identity, resume or
// create, the loop over units, the finish. A task defines how records become samples, which columns its results have,
// how units are computed, and what remains to be done after the last unit.
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

// The inputs of a task. The runner opens them; they are equal on every rank and outlive the job.
struct TaskInputs {
  const RunContext& context;
  Checkpoint& checkpoint;
  const OpenModel& model;
  const Dataset& dataset;
  int tp_size = 1;    // of this rank's groups; if groups have several sizes, every rank opens the task for each size
  int num_ranks = 1;  // of the job, or of the planned job
  bool data_is_placeholder = false;  // see TaskData
};

// The source of a task's records. is_placeholder: the task that makes them has not run; only their number is
// meaningful.
struct TaskData {
  DatasetConfig config;
  bool is_placeholder = false;
};

// Returns the records of `dataset`. If an earlier task makes one of its files and has not run, returns the records of
// that task as a placeholder. Local.
TaskData available_data(const DatasetConfig& dataset, const RunContext& context);

// The results file for a plan, without the attributes that all tasks have.
struct TaskResults {
  std::uint64_t format_version = 1;
  std::vector<ColumnSpec> columns;
  std::string default_plot_column;  // empty: none
  std::uint64_t packed_bytes = 0;   // for a job that packs: size of the final file, upper bound
  std::string made_smaller_by;      // keys that make it smaller, as text after "lower": "top_k"; empty: none
  Notes notes{};                    // lines of `plan` about the results
};

// The inputs that earlier tasks have not made yet.
struct Awaited {
  bool results = false;      // the results that open_results() opens; until then lengths are unknown
  bool placeholder = false;  // the job has opened a placeholder; it is opened again when that task has run
};

// The memory that a plan needs.
struct MemoryDemand {
  std::uint64_t cache_pages = 0;  // pages of keys and values that each shard keeps during the work
  MemoryParts device{};           // on each device; empty: that of forward passes with these pages
  MemoryParts host{};             // extra host memory of a rank whose model is on a GPU; empty: negligible
  Notes notes{};                  // lines of `plan` about the memory
  std::string fault{};            // why the task may not use that much, and what to do; empty: it may
};

// Files and folders that belong to the results and are in the same folder.
struct SideFiles {
  struct File {
    std::string path;
    const char* holds;  // its content, for the message that it is missing
    const char* remedy = "put it back, or start over with --fresh";
  };
  std::vector<File> needed{};            // must exist next to complete results
  std::vector<std::string> put_aside{};  // renamed with --fresh
  std::function<void()> check{};         // checks `needed`: throws, the same on every rank, if they are wrong
};

// Makes the final file at `path` from the file of the units, completely or not at all. root: its attributes in order,
// without num_samples and num_tokens. Called only on rank 0. False: the job was asked to stop meanwhile.
using Packing = std::function<bool(const ResultsFile& running, const PlanNumbers& plan, const std::string& path,
                                   const Attributes& root)>;

// The work of a task in one run, once model and data are open. Every function is local unless its comment says
// otherwise.
class TaskJob {
 public:
  virtual ~TaskJob() = default;

  // Returns what earlier tasks have not made yet.
  virtual Awaited awaited() const { return {}; }
  // Opens the results of earlier tasks that this one reads. Called when those tasks have run.
  virtual void open_results() {}
  // Registers second models in the store of weights and returns their names there. Called before work(). identity: the
  // identity of the results.
  virtual std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) { return {}; }
  // Returns what decides the results in addition to config, checkpoint, data set, dtype, device and sizes of groups.
  // Called after open_results(). Collective over the world.
  virtual Attributes identity() { return {}; }
  // Refuses files of another experiment that an earlier run left next to the results. Called before the file of the
  // units is made, because that file would be in the way of the experiment that they belong to. attributes: those of
  // the file. Collective over the world.
  virtual void check_left_over(const Attributes& attributes) const {}
  // Returns how records become samples and units; the rules refer to the job. Throws Error(kConfig) for a request that
  // the model cannot fulfil.
  virtual SampleRules rules() = 0;
  // Returns the results file for a plan.
  virtual TaskResults results(const PlanNumbers& plan) const = 0;
  // Returns the memory that the work needs with a plan; by default that of forward passes.
  virtual MemoryDemand demand(const PlanNumbers& plan) const { return {}; }
  // Returns the task's decision from the row after a prompt: `model.quantization_loss` counts how often quantisation
  // changes it.
  virtual std::function<RowDecision(std::span<const float> logits_V)> decision() const { return {}; }
  // Returns the files next to the results; by default none.
  virtual SideFiles side_files() const { return {}; }
  // If not empty, the units are computed into <name>.running.h5, from which this function makes the final file.
  virtual Packing packing() { return {}; }

  // Computes units until none is left or the job stops: each shard of this rank has a worker(). Tasks without a model
  // and trainings, whose steps are not units, override it. Collective over the group.
  virtual void work(const ModelRun& run);
  // Makes the worker of a shard, which refers to this job. Called on the shard's thread while other shards call it.
  // Collective over the group.
  virtual std::unique_ptr<ShardWorker> worker(ShardContext shard);
  // Writes the files next to the results. Called only on rank 0, when every unit is committed and before the results
  // are marked complete; a run after a kill calls it again. False: the job was asked to stop meanwhile.
  virtual bool report(const ResultsFile& file, const PlanNumbers& plan) { return true; }
};

// The properties of a task that follow from its keys alone.
struct TaskTraits {
  // The head that its model must have: over the vocabulary, over labels (a classifier, a reward model), or any.
  enum class Head { kVocabulary, kLabels, kAny } head = Head::kVocabulary;
  std::int64_t head_labels = 0;  // labels of the head that it trains; 0: a head over the vocabulary, or it trains none
  bool runs_model = true;        // runs the model of the file; a training has weights of its own
  bool divides_records = true;   // divides them among the ranks; a training divides its batches
  // The results file keeps key_bytes and longest_sample of PlanNumbers for a restart.
  bool keeps_widths = false;
  std::vector<std::string> needs{};  // names of further tasks than the one that trains its model; "" is ignored
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
  const DatasetConfig& dataset() const { return dataset_; }  // as its own keys define it
  // Returns the names, each once, of the tasks whose results or model it uses, and of those that its key `needs` lists.
  // A name may be that of a task of another experiment whose results are on disk.
  std::vector<std::string> needs() const;
  void also_needs(std::vector<std::string> names);
  const TaskTraits& traits() const { return traits_; }
  // Returns the records that it can read now. Throws Error(kConfig) for an earlier task that does not exist. Local.
  virtual TaskData data(const RunContext& context) const { return available_data(dataset_, context); }
  // For tasks that write or score texts: the number of texts that the results hold per record, and their kind, as far
  // as the config tells.
  struct RecordTexts {
    std::uint64_t texts = 0;   // 0: not known until another task has run
    bool of_model = false;     // scores of a model, for which no threshold is known
    bool has_classes = false;  // the results record which texts give the same answer
    // For rollouts: the number of texts that continue one cut and are compared, and the least and greatest reward if a
    // rule gives them.
    std::uint64_t per_cut = 0;
    std::optional<std::pair<double, double>> rewards{};
  };
  virtual RecordTexts record_texts(const RunContext& context) const { return {}; }
  // Returns how much its model computes, as far as the config tells. tokens 0: the lengths are not known yet.
  virtual ModelWork model_work(double samples, double tokens) const { return {tokens}; }
  // Returns the second models on the same devices. device: as for pass_shape().
  virtual std::vector<SecondModel> second_models(const PassLimits& device) const { return {}; }
  // Sets the keys that the config leaves to the records, which it reads; called before fit_lengths(). Collective over
  // context.world.
  virtual void fit_to_records(const RunContext& context) {}
  // Sets the lengths that the config leaves to the models: to their usual values, or to what these models allow if that
  // is less. Returns a note about each that is not the usual one. Called whenever the task is opened, before anything
  // that depends on a length. own: the positions of its model. Local, the same on every rank.
  virtual Notes fit_lengths(const Positions& own, const PositionsOf& of) { return {}; }
  // Returns the tokens of the longest text, prompt and answer together, that its model keeps in a cache; 0: its passes
  // have no cache. Called after fit_lengths().
  virtual std::uint64_t cached_tokens() const { return 0; }
  // Makes the step that the experiment runs for the task: by default a TaskRunner over its units, which calls
  // pass_shape() and open(). plan_ranks: the number of ranks of a plan. Collective over context.world.
  virtual std::unique_ptr<Step> step(RunContext context, std::optional<int> plan_ranks);
  // Returns the size of its forward passes. device: the values of keys that are `auto`, if the device has a preference.
  virtual PassShape pass_shape(const PassLimits& device) const;
  // Opens and checks everything that belongs to this task, so that faults show before any task computes. Throws the
  // errors of opening. Collective over the world.
  virtual std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const;
  // Makes the files next to complete results again (a judge's summary). Called on one rank: context.world has no other.
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
