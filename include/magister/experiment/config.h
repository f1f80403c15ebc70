// The experiment as typed structs: what the sections that every task shares say, checked and with defaults filled in.
// A task's own keys are in src/tasks/<name>/config.h. Paths are kept as written: relative ones start at the working directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/io/results/results_file.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/unit_tickets.h"

namespace magister {

// A model without weights: they are drawn by this seed.
struct RandomStart {
  std::uint64_t seed = 0;
  std::string tokenizer;  // the model whose tokenizer and chat template it shares; empty: those beside its config
};

struct ModelSection {
  bool none = false;  // of a task that computes without a model: nothing else here is said
  std::string path;
  std::string hub_name;               // by which path was found in the hub's cache; empty: path is as it was given
  bool path_is_base = false;          // path held an adapter alone and became its base's
  std::optional<RandomStart> random;  // path is a folder whose config.json alone counts
  // Of a model that an earlier task of the experiment trains: that task, whose folder `path` is, and the model that it starts from, which
  // has the same config and tokenizer; begins_as is empty where no such task comes before.
  std::string task, begins_as;
  std::optional<RandomStart> begins_random;
  // Labels of the head of such a model that is a reward or a value model: placeholder() opens what it starts from with a head like it. 0: it
  // is another model.
  std::int64_t head_labels = 0;
  // For a random start whose config or tokenizer comes from a model that an earlier task trains: those tasks, and the models that have the
  // same config and tokenizer already.
  std::string config_task, tokenizer_task;
  std::string available_config, available_tokenizer;
  std::string adapter;         // folder of a LoRA adapter that is merged into the weights; empty: none
  std::string adapter_task;    // the earlier task that trains it; empty: none does
  std::string dtype = "auto";  // auto | f32 | bf16 | f16, on GPUs also fp8
  std::string quantization =
      "none";  // none | int8 | int4, of the layers' weights: the file's own codes, or made while loading
  // Inputs a scale: 32 | 64 | 128, or 0: one scale an output. Nothing: the file's own, and 32 where codes are made.
  std::optional<std::int64_t> quantization_group;
  bool cudnn_attention = false;        // attention: of long texts in passes without a cache; else flash attention
  bool throughput_decoding = false;    // decoding: products for many texts at once, by the library; else our own
  std::int64_t quantization_loss = 0;  // tokens over which the loss is measured before the work; 0: not
  std::string chat_template;           // a file or a text; empty: the model's own
  // Variables of the chat template beyond the chat itself (enable_thinking: false), and where they stand, for messages.
  std::vector<std::pair<std::string, ConfigValue>> chat_template_kwargs;
  std::string chat_template_kwargs_place;
  std::string place;  // file:line:column and key of the section

  // What can be opened in its place before these tasks have run.
  ModelSection placeholder() const;
};

// How a run goes, not what it computes: never part of the results file: it is the same for any of these.
struct RunSection {
  std::optional<double> max_wall_seconds;  // --max-wall wins over run.max_wall
  Schedule schedule = Schedule::kDynamic;
  int at_once = 0;                 // tasks, at most; 0: as many as there are groups
  double watchdog_seconds = 1800;  // a rank that stays longer in one phase ends the job; 0: no watchdog
};

// What `plan` may count with; never part of the results file.
struct PlanSection {
  std::uint64_t device_memory = 0;            // bytes of one device, of the least of `hosts`; 0: not said
  GpuDevice device;                           // with that memory, where device_memory says it
  std::vector<std::vector<GpuDevice>> hosts;  // of `devices`: the GPUs of each host; empty: not said
  std::string note;  // about how memory is written, and cards that no run takes; empty: nothing
};

struct ExperimentConfig {
  std::string name;
  std::uint64_t seed = 0;
  std::string output_directory = "runs";
  ResultsAccess results_access;  // never part of the results file: the bytes are the same
  bool has_model = false;        // a `model:` for all tasks that carry none of their own
  ModelSection model;
  LayoutConfig layout;
  RunSection run;
  PlanSection plan;
  // The tasks that were read so far and write a model: name, and what each starts from.
  std::vector<std::pair<std::string, ModelSection>> trained;
  std::vector<std::string> earlier;  // names of all that were read so far

  // <output.directory>/<name>
  std::string folder() const { return output_directory + "/" + name; }
  // The task before the one that is read whose results stand at this path; "" where it is none.
  std::string maker_of(const std::string& path) const;
  // A task's name as it is, or of a path to results in this folder the name of the task that writes them.
  std::string task_of(const std::string& name_or_path) const;
};

// The experiment's `model:`, for all tasks that carry none of their own.
ModelSection read_shared_model(ConfigNode section);
// A task's own `model:`, or the experiment's; a fault when neither is there. A task that `model.task` names and that is not among
// experiment.trained is a fault that Experiment tells, who knows all tasks. trains: only then a model may have no weights yet.
ModelSection read_task_model(ConfigNode& task, const ExperimentConfig& experiment, bool trains = false);
// A reward model beside a task's own model: path, or task as in `model:`, which must be a train task of objective reward before this one. Its
// dtype is the caller's to say.
ModelSection read_reward_model(ConfigNode& section, const ExperimentConfig& experiment);
// A judge beside a task's own model: a path, which may be that of the model that an earlier task trains.
ModelSection read_judge_model(ConfigNode section, const ExperimentConfig& experiment);
// A task's `name:`, made sure to be fit for a file name.
std::string read_task_name(ConfigNode& task, const std::string& fallback);
// A task's `dataset:` and its `slice:`. whole_records: the task reads fields itself, so `text` and `tokens` are unknown.
DatasetConfig read_dataset(ConfigNode& task, bool whole_records = false);
// For a task whose records are texts, chats or ids as in read_dataset(), or, with `pairs`, pairs of answers as in TRL's preference data sets; with
// `margins` these may have margins. Then whole_record is true.
DatasetConfig read_dataset_or_pairs(ConfigNode& task, bool pairs, bool margins);
// name, seed, output, model where it is there, layout, run, plan; not tasks.
ExperimentConfig read_experiment_config(ConfigNode& root);

// Seconds of "HH:MM:SS" (hours may have more digits, minutes and seconds are below 60); nothing for anything else or 0.
std::optional<double> parse_wall_time(const std::string& text);
// Bytes of "80GB", "79.5 GiB", "81559 MiB", "1.5TB"; nothing for anything else, 0 or more than 2^60.
std::optional<std::uint64_t> parse_bytes(const std::string& text);
// [A-Za-z0-9_-]{1,100}: what may become the name of a file or folder.
bool is_plain_name(const std::string& text);

}  // namespace magister
