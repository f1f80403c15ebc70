// The experiment as typed structs: the sections that all tasks share, checked and with defaults filled in.
// The keys of a single task are in src/tasks/<name>/config.h. Paths are kept as written; relative paths start at the
// working directory.
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

// A model without weights: the weights are drawn with this seed.
struct RandomStart {
  std::uint64_t seed = 0;
  std::string tokenizer;  // model whose tokenizer and chat template it uses; empty: those next to its own config
};

struct ModelSection {
  bool none = false;  // the task computes without a model; no other field is set
  std::string path;
  // The name by which path was found in the hub's cache; empty: path is as the user wrote it.
  std::string hub_name;
  bool path_is_base = false;          // path named a folder with only an adapter; it was replaced by the base model
  std::optional<RandomStart> random;  // path is a folder of which only config.json is used
  // For a model that an earlier task trains: task is that task, whose folder path is, and begins_as is the model that
  // the training starts from, which has the same config and tokenizer. begins_as is empty if no earlier task trains it.
  std::string task, begins_as;
  std::optional<RandomStart> begins_random;
  // Number of labels of the head if that trained model is a reward or value model; placeholder() then opens the start
  // model with such a head. 0: it is another kind of model.
  std::int64_t head_labels = 0;
  // For a random start whose config or tokenizer comes from a model that an earlier task trains: these tasks, and the
  // models that have the same config and tokenizer and exist before these tasks have run.
  std::string config_task, tokenizer_task;
  std::string available_config, available_tokenizer;
  std::string adapter;         // folder of a LoRA adapter that is merged into the weights; empty: none
  std::string adapter_task;    // the earlier task that trains the adapter; empty: none
  std::string dtype = "auto";  // auto | f32 | bf16 | f16, on GPUs also fp8
  // Quantisation of the layers' weights: none | int8 | int4. The codes are those of the file, or are made while
  // loading.
  std::string quantization = "none";
  // Inputs per scale: 32 | 64 | 128; 0: one scale per output. No value: as in the file, and 32 where codes are made
  // here.
  std::optional<std::int64_t> quantization_group;
  // Tokens of the text whose rotary frequencies every text has (dynamic scaling, LongRoPE); 0: not given.
  std::uint64_t rope_length = 0;
  // cuDNN attention for long texts in passes without a cache; otherwise flash attention.
  bool cudnn_attention = false;
  // Decoding products for many texts at once by the library; otherwise by our own kernels.
  bool throughput_decoding = false;
  // On GPUs, pages of keys and values in 8-bit floats; otherwise in the activations' dtype.
  bool fp8_cache = false;
  // Tokens over which the loss of quantisation and fp8_cache is measured before the work; 0: it is not measured.
  std::int64_t quantization_loss = 0;
  std::string chat_template;  // a file, or the template's text; empty: the model's own
  // Variables of the chat template in addition to the chat itself (enable_thinking: false), and their place in the YAML
  // file for messages.
  std::vector<std::pair<std::string, ConfigValue>> chat_template_kwargs;
  std::string chat_template_kwargs_place;
  std::string place;  // file:line:column and key of the section

  // The model to open instead of this one before the tasks that write it have run.
  ModelSection placeholder() const;
};

// How a run is carried out, not what it computes. Never part of the results file, which is the same for all of these
// values.
struct RunSection {
  std::optional<double> max_wall_seconds;  // --max-wall overrides run.max_wall
  Schedule schedule = Schedule::kDynamic;
  int at_once = 0;  // most tasks at a time; 0: as many as there are groups
  // A rank that stays longer than this in one phase ends the job; 0: no watchdog.
  double watchdog_seconds = 1800;
};

// The devices that `plan` assumes; never part of the results file.
struct PlanSection {
  std::uint64_t device_memory = 0;            // bytes of one device, of the smallest one of `hosts`; 0: not given
  GpuDevice device;                           // the device that device_memory describes, if that key is given
  std::vector<std::vector<GpuDevice>> hosts;  // from `devices`: the GPUs of each host; empty: not given
  // A remark about how memory is written or about cards that a run would refuse; empty: none.
  std::string note;
};

struct ExperimentConfig {
  std::string name;
  std::uint64_t seed = 0;
  std::string output_directory = "runs";
  ResultsAccess results_access;  // never part of the results file: the bytes are the same
  bool has_model = false;        // there is a `model:` for all tasks without one of their own
  ModelSection model;
  LayoutConfig layout;
  RunSection run;
  PlanSection plan;
  // The tasks read so far that write a model: name, and the model from which each starts.
  std::vector<std::pair<std::string, ModelSection>> trained;
  std::vector<std::string> earlier;  // names of all tasks read so far

  // <output.directory>/<name>
  std::string folder() const { return output_directory + "/" + name; }
  // The earlier task whose results this path names; "" if there is none.
  std::string maker_of(const std::string& path) const;
  // For a path to results in this folder the name of the task that writes them; otherwise the argument unchanged.
  std::string task_of(const std::string& name_or_path) const;
};

// Reads the experiment's `model:`, which all tasks without one of their own use.
ModelSection read_shared_model(ConfigNode section);
// Reads a task's own `model:`, or uses the experiment's; a fault if there is neither. If `model.task` names a task that
// is not in experiment.trained, Experiment reports the fault, since it knows all tasks. trains: only then a model may
// have no weights yet.
ModelSection read_task_model(ConfigNode& task, const ExperimentConfig& experiment, bool trains = false);
// Reads a reward model that a task uses in addition to its own model: path, or task as in `model:`, which must be an
// earlier train task of objective reward or value. The caller sets its dtype.
ModelSection read_reward_model(ConfigNode& section, const ExperimentConfig& experiment);
// Reads a judge that a task uses in addition to its own model: a path, which may be that of a model that an earlier
// task trains.
ModelSection read_judge_model(ConfigNode section, const ExperimentConfig& experiment);
// Reads a task's `name:` and checks that it is fit for a file name.
std::string read_task_name(ConfigNode& task, const std::string& fallback);
// Reads a task's `dataset:` and its `slice:`. whole_records: the task reads the fields itself, so `text` and `tokens`
// are unknown keys. experiment: not null if the task can read the results of an earlier task as records (`task`,
// `keep`).
DatasetConfig read_dataset(ConfigNode& task, bool whole_records = false, const ExperimentConfig* experiment = nullptr);
// For a task whose records are texts, chats or ids as in read_dataset(), or, with `pairs`, pairs of answers as in TRL's
// preference data sets (whole_record is then true). With `margins` the pairs may have margins.
DatasetConfig read_dataset_or_pairs(ConfigNode& task, bool pairs, bool margins);
// Reads name, seed, output, model if it is given, layout, run and plan, but not the tasks.
ExperimentConfig read_experiment_config(ConfigNode& root);

// Seconds of "HH:MM:SS" (hours may have more digits, minutes and seconds are below 60); no value for other text or for
// 0.
std::optional<double> parse_wall_time(const std::string& text);
// Bytes of "80GB", "79.5 GiB", "81559 MiB", "1.5TB"; no value for other text, for 0 or for more than 2^60.
std::optional<std::uint64_t> parse_bytes(const std::string& text);
// True for [A-Za-z0-9_-]{1,100}: such a text may be the name of a file or folder.
bool is_plain_name(const std::string& text);

}  // namespace magister
