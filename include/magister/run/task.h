// Task: one step of an experiment. What all tasks do alike - lock, identity, resume or create, the loop over units, the finish -
// is TaskRunner's (task_runner.h); a task says here what is its own: how records become samples, which columns its results
// have, how units are computed, and what remains to be done when all are there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/memory_parts.h"
#include "magister/io/dataset/dataset.h"
#include "magister/io/results/results_file.h"
#include "magister/run/checkpoint.h"
#include "magister/run/length_key.h"
#include "magister/run/memory_plan.h"
#include "magister/run/notes.h"
#include "magister/run/pass_shape.h"
#include "magister/run/quantization_loss.h"
#include "magister/run/run_context.h"
#include "magister/run/sample_plan.h"
#include "magister/run/time_estimate.h"

namespace magister {

struct ModelRun;
struct OpenModel;

// What a task works with: opened by the runner, equal on every rank, and there as long as the job is.
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

// Where a task's records come from. is_placeholder: from a task before it that has not run: these are that task's own records, of which only the
// number may mean something.
struct TaskData {
  DatasetConfig config;
  bool is_placeholder = false;
};

// The records of `dataset`, or where an earlier task makes one of its files and has not run, that task's records. Local.
TaskData available_data(const DatasetConfig& dataset, const RunContext& context);

// The plan in numbers: from SamplePlan, or on a restart from the attributes of the file that it made.
struct PlanNumbers {
  std::uint64_t num_samples = 0, num_tokens = 0, num_units = 0;
  std::uint64_t key_bytes = 1;       // width of /samples/key
  std::uint64_t longest_sample = 0;  // tokens
};

// The results file of a plan, without the attributes that all tasks have.
struct TaskResults {
  std::uint64_t format_version = 1;
  std::vector<ColumnSpec> columns;
  std::string default_plot_column;  // empty: none
  std::uint64_t packed_bytes = 0;   // of a job that packs: the final file's, upper bound
  std::string made_smaller_by;      // the keys that do it, in words behind "lower": "top_k"; empty: none
};

// A task's job of one run. Local unless it says otherwise.
class TaskJob {
 public:
  virtual ~TaskJob() = default;

  // What must be there before work begins and is made by earlier tasks: other tasks' results. Called when they have run.
  virtual void open_results() {}
  // The weights of models beside the task's own may be in the store already, and stay there: under the names that this returns. Before
  // work(); identity: the whole one.
  virtual std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) { return {}; }
  // What decides the content besides config, checkpoint, data set, dtype, device and sizes of groups. After open_results().
  // Collective over the world.
  virtual Attributes identity() { return {}; }
  // How records become samples and units. Throws Error(kConfig) for what the model cannot do. What it refers to is the job's.
  virtual SampleRules rules() = 0;
  // Whether open_results() would find them.
  virtual bool inputs_exist() const { return true; }
  // Whether it has opened something in place of what an earlier task makes; when that has run, the job is made anew.
  virtual bool awaits_earlier() const { return false; }
  virtual TaskResults results(const PlanNumbers& plan) const = 0;
  // Pages of keys and values that the work takes of each shard; 0: it keeps none.
  virtual std::uint64_t cache_pages(std::uint64_t longest_sample) const { return 0; }
  // What is read from the row after a prompt, where `model.quantization_loss` is to count how often quantisation changes it.
  virtual std::function<RowDecision(std::span<const float> logits_V)> decision() const { return {}; }
  // Memory of a device by part, where it is not that of forward passes; empty: it is.
  virtual MemoryParts memory(const PlanNumbers& plan) const { return {}; }
  // What a rank whose model is on a GPU needs of its host beside that, by part; empty: little.
  virtual MemoryParts host_memory(const PlanNumbers& plan) const { return {}; }
  // With --fresh: what earlier runs left beside the results. Collective over the world.
  virtual void put_aside() {}
  // Throws where something that belongs to complete results is not there any more. Local; the answer is the same on every rank.
  virtual void check_complete() const {}
  // Before a file is made for the plan, and in `plan`. Throws Error(kData) where nothing of it could be computed. Local; the answer is the same
  // on every rank.
  virtual void check_samples(const SamplePlan& plan) const {}
  // Throws Error(kConfig), the same on every rank, where the work needs more memory than the task may take. Collective over the world.
  virtual void check_memory(const PlanNumbers& plan) const {}
  // Lines of `plan` about that.
  virtual Notes memory_notes(const PlanNumbers& plan) const { return {}; }
  // More lines of `plan`.
  virtual Notes notes(const PlanNumbers& plan) const { return {}; }

  // Computes units until none is left or the job stops. Collective over the group.
  virtual void work(const ModelRun& run, const PlanNumbers& plan) = 0;

  // When every unit is committed, on rank 0 alone and as often as a kill makes necessary: what stands beside the results, before
  // they are called complete. False: the job was asked to stop meanwhile.
  virtual bool report(const ResultsFile& file, const PlanNumbers& plan) { return true; }
  // A job that packs works in <name>.running.h5 and makes the final file of it at the end, on rank 0 alone, whole or not at all.
  // root: its attributes in order but for num_samples and num_tokens. False: asked to stop.
  virtual bool packs() const { return false; }
  // Whether a restart needs PlanNumbers' key_bytes and longest_sample: they are attributes of the file then.
  virtual bool keeps_widths() const { return packs(); }
  virtual bool pack(const ResultsFile& running, const PlanNumbers& plan, const std::string& path,
                    const Attributes& root) {
    return true;
  }
};

class Task {
 public:
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  const std::string& kind() const { return kind_; }  // "teacher_logits"
  const std::string& name() const { return name_; }  // names the results file

  const ModelSection& model_section() const { return model_; }
  const DatasetConfig& dataset() const { return dataset_; }  // of its own keys
  // Names of the tasks before this one whose results or model it takes: of this experiment, or their results stand on disk; and those that
  // the experiment names (`needs`), each once.
  std::vector<std::string> needs() const {
    std::vector<std::string> names = {model_.task}, unique;
    const std::vector<std::string> others = other_needs();
    names.insert(names.end(), others.begin(), others.end());
    names.insert(names.end(), also_needed_.begin(), also_needed_.end());
    for (std::string& name : names) {
      if (!name.empty() && std::find(unique.begin(), unique.end(), name) == unique.end())
        unique.push_back(std::move(name));
    }
    return unique;
  }
  void also_needs(std::vector<std::string> names) {
    also_needed_.insert(also_needed_.end(), std::make_move_iterator(names.begin()),
                        std::make_move_iterator(names.end()));
  }
  // Throws Error(kConfig) for an earlier task that is not there. Local.
  virtual TaskData data(const RunContext& context) const { return available_data(dataset_, context); }
  // The head that its model must have: one over the vocabulary, one of labels (a classifier, a reward model), or any.
  enum class Head { kVocabulary, kLabels, kAny };
  virtual Head head() const { return Head::kVocabulary; }
  // Of a task that writes texts, or says of texts what they are worth: what its results hold of a record, as far as the keys say.
  struct RecordTexts {
    std::uint64_t texts = 0;   // 0: not known before another task has run
    bool of_model = false;     // numbers that no threshold stands for
    bool has_classes = false;  // which texts give the same answer is known
    // Of rollouts: texts behind one cut, which are compared; and what a text is worth at least and at most, where a rule says it.
    std::uint64_t behind_a_cut = 0;
    std::optional<std::pair<double, double>> rewards{};
  };
  virtual RecordTexts record_texts(const RunContext& context) const { return {}; }
  // Of TaskJob::identity() what the keys alone tell: tasks that read its results must fit it before there are any.
  virtual Attributes announced() const { return {}; }
  // What its model computes, as far as the keys say; 0 tokens of samples: they are not known yet.
  virtual ModelWork model_work(double samples, double tokens) const { return {tokens}; }
  // Whether it runs its model as it stands in the file; a training has weights of its own.
  virtual bool runs_model() const { return true; }
  // Whether its ranks share its records out; a training's share its batches.
  virtual bool divides_records() const { return true; }
  // Without it `layout.devices: auto` means the ranks' CPUs.
  virtual bool uses_gpus() const { return true; }
  // The models beside its own on the same devices; device: as of pass_shape().
  virtual std::vector<SecondModel> second_models(const PassLimits& device) const { return {}; }
  // Of a task that trains a reward or a value model: labels of its head; 0: it trains another.
  virtual std::int64_t head_labels() const { return 0; }
  // Lengths that the keys leave to the models become what these allow; what is not as usual is noted. Whenever the task is opened, before anything
  // that depends on a length. own: of its model. Local, the same on every rank.
  virtual Notes fit_lengths(const Positions& own, const PositionsOf& of) { return {}; }
  // device: what `auto` stands for where it says something.
  virtual PassShape pass_shape(const PassLimits& device) const = 0;
  // Opens and checks everything that is the task's own, so that its faults show before any task computes. Throws as what it opens.
  // Collective over the world.
  virtual std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const = 0;
  // Makes what stands beside complete results again (a judge's summary). One rank: context.world is alone.
  virtual void summarize(const RunContext& context) const {
    fail(ExitCode::kUsage, "{}: a task of kind {} has no summary (only a judge has); name another task", name_, kind_);
  }

 protected:
  Task(std::string kind, std::string name, ModelSection model, DatasetConfig dataset)
      : kind_(std::move(kind)), name_(std::move(name)), model_(std::move(model)), dataset_(std::move(dataset)) {}

 private:
  // Besides the task that trains its model; "" is none.
  virtual std::vector<std::string> other_needs() const { return {}; }

  std::string kind_;
  std::string name_;
  std::vector<std::string> also_needed_;
  ModelSection model_;
  DatasetConfig dataset_;
};

}  // namespace magister
