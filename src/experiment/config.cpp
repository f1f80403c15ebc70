// The shared sections of an experiment, key by key. configs/keys lists them for users; keep the two in step.
// The order of the reads is the order of the resolved experiment, so changing it changes every config_sha256.
#include "magister/experiment/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>

#include "experiment/layout_section.h"
#include "experiment/plan_section.h"
#include "magister/core/error.h"
#include "magister/parallel/mpi_hints.h"

namespace magister {

namespace {

std::optional<std::uint64_t> decimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

RunSection read_run(ConfigNode& root) {
  ConfigNode node = root.section("run");
  RunSection run;
  if (const auto text = node.optional_text("max_wall")) {
    run.max_wall_seconds = parse_wall_time(*text);
    if (!run.max_wall_seconds) {
      node.reject("max_wall",
                  "\"{}\" is not a time (hours, minutes and seconds are expected); write it as HH:MM:SS, for "
                  "example 11:45:00",
                  printable(*text, 40));
    }
  }
  node.text_form("max_wall", "^[0-9]{1,6}:[0-5][0-9]:[0-5][0-9]$");
  run.schedule =
      node.choice("schedule", {"dynamic", "static"}, "dynamic") == "static" ? Schedule::kStatic : Schedule::kDynamic;
  run.at_once = static_cast<int>(node.integer("at_once", 0, 0, 4096));
  run.watchdog_seconds = node.number("watchdog_seconds", 1800, 0, 1e7);
  root.outside_identity("run");
  return run;
}

void read_output(ConfigNode& root, ExperimentConfig& experiment) {
  ConfigNode node = root.section("output");
  root.outside_identity("output");
  experiment.output_directory = node.text("directory", "runs");
  ResultsAccess& access = experiment.results_access;
  const bool mpio = node.choice("driver", {"pwrite", "mpio"}, "pwrite") == "mpio";
  access.driver = mpio ? ResultsAccess::Driver::kMpio : ResultsAccess::Driver::kPwrite;
  access.hints = node.text_map("hints");
  if (!mpio && !access.hints.empty()) {
    node.reject(
        "hints",
        "hints are given and the driver is pwrite (only MPI-IO takes hints); set driver to mpio, or remove them");
  }
  for (const auto& [name, value] : access.hints) {
    if (!is_plain_name(name) || name.size() > MpiHints::max_name_bytes() || value.empty() ||
        value.size() > MpiHints::max_value_bytes()) {
      node.reject("hints",
                  "\"{}\" is not a hint that this MPI takes (letters, digits, _ and - in at most {} bytes, a value of "
                  "1 to {}); write for example striping_factor: 8",
                  printable(name, 40), MpiHints::max_name_bytes(), MpiHints::max_value_bytes());
    }
  }
}

// Reads which field of a record is used: text, token ids or a chat.
void read_fields(ConfigNode& node, DatasetConfig& dataset) {
  const bool chats = node.has("messages"), ids = node.has("tokens");
  if (chats && (ids || node.has("text"))) {
    node.reject("messages",
                "`messages` and another field are given (a record is read from one field); remove one of them");
  } else if (ids && node.has("text")) {
    node.reject("tokens", "both `text` and `tokens` are given (a record is read from one field); remove one of them");
  }
  if (chats || ids) {
    node.optional_text("text");
  } else {
    dataset.text_field = node.text("text", "text");
  }
  dataset.tokens_field = node.optional_text("tokens").value_or("");
  ConfigNode of_ids = node.only_if(ids, "is given without `tokens` (it belongs to an array of token ids); remove it");
  dataset.lengths_field = of_ids.optional_text("lengths").value_or("");
  dataset.offsets_field = of_ids.optional_text("offsets").value_or("");
  if (!dataset.lengths_field.empty() && !dataset.offsets_field.empty())
    node.reject("offsets", "both `lengths` and `offsets` are given (an array has rows, or is one list); remove one");
  dataset.messages_field = node.optional_text("messages").value_or("");
  dataset.whole_record = chats;
  ConfigNode of_chats =
      node.only_if(chats, "is given without `messages` (only a chat has messages); name their field, or remove it");
  dataset.tools_field = of_chats.optional_text("tools").value_or("");
  dataset.special_tokens_in_messages = of_chats.choice("special_tokens", {"text", "tokens"}, "text") == "tokens";
  node.also_called("text", {"prompt", "prompts", "prompt_column", "text_column", "column"});
  node.also_called("messages", {"conversations", "chat", "conversation"});
  node.also_called("tokens", {"input_ids", "prompt_token_ids"});
  node.also_called("lengths", {"seq_lengths"});
  node.also_called("tools", {"functions", "tools_column"});
}

// "i/n" with 0 <= i < n.
void read_slice(ConfigNode& task, DatasetConfig& dataset) {
  const auto text = task.optional_text("slice");
  task.text_form("slice", "^[0-9]+/[0-9]+$");
  if (!text) return;
  const std::vector<std::string> parts = split(*text, '/');
  const auto index = decimal(parts[0]);
  const auto count = parts.size() == 2 ? decimal(parts[1]) : std::nullopt;
  if (!index || !count || *index >= *count) {
    task.reject("slice",
                "\"{}\" is not i/n with i from 0 to n - 1 (it says which part of the records this run computes); "
                "write for example 0/4",
                printable(*text, 40));
    return;
  }
  dataset.slice_index = *index;
  dataset.slice_count = *count;
}

}  // namespace

std::optional<double> parse_wall_time(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() != 3 || parts[1].size() != 2 || parts[2].size() != 2 || parts[0].size() > 6) return std::nullopt;
  const auto hours = decimal(parts[0]), minutes = decimal(parts[1]), seconds = decimal(parts[2]);
  if (!hours || !minutes || !seconds || *minutes >= 60 || *seconds >= 60) return std::nullopt;
  const std::uint64_t total = *hours * 3600 + *minutes * 60 + *seconds;
  if (total == 0) return std::nullopt;
  return static_cast<double>(total);
}

std::optional<std::uint64_t> parse_bytes(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
                                                            {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const auto& [name, factor] : kUnits) {
    const double bytes = number * factor;
    if (error == std::errc() && unit == name && bytes >= 1 && bytes <= 0x1p60) return static_cast<std::uint64_t>(bytes);
  }
  return std::nullopt;
}

bool is_plain_name(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 100 && std::all_of(text.begin(), text.end(), plain);
}

namespace {

constexpr const char* kPlainName = "^[A-Za-z0-9_-]{1,100}$";

}  // namespace

std::string read_task_name(ConfigNode& task, const std::string& fallback) {
  const std::string name = task.text("name", fallback);
  task.text_form("name", kPlainName);
  if (!is_plain_name(name)) {
    task.reject("name", "\"{}\" cannot name a file (letters, digits, _ and - can, at most 100); choose another",
                printable(name, 120));
  }
  if (name == "logs") task.reject("name", "\"logs\" (the run keeps its logs there); choose another");
  return name;
}

namespace {

constexpr std::size_t kMostSources = 256;

// Reads `sources`, the alternative to `path`: records are drawn from them by weight. Names as in interleave_datasets of
// Hugging Face's `datasets`.
void read_sources(ConfigNode& node, DatasetConfig& dataset) {
  DatasetMix mix;
  for (ConfigNode& source : node.optional_sections("sources")) {
    const std::vector<std::string> paths = source.texts("path");
    dataset.paths.insert(dataset.paths.end(), paths.begin(), paths.end());
    mix.sources.push_back({paths.size(), source.number("weight", 1e-6, 1e6)});
    source.also_called("weight", {"probability", "ratio", "frac"});
  }
  if (mix.sources.size() > kMostSources) {
    node.reject("sources",
                "{} sources are given (each is read by a thread of its own, at most {} are); join files of equal "
                "weight in one `path`",
                mix.sources.size(), kMostSources);
  }
  ConfigNode of_mix = node.only_if(node.has("sources"), "is given without `sources` (only these are drawn); remove it");
  const std::string stop =
      of_mix.choice("stopping_strategy", {"first_exhausted", "all_exhausted", "all_exhausted_without_replacement"},
                    "first_exhausted");
  mix.stop = stop == "first_exhausted" ? DatasetMix::Stop::kFirstExhausted
             : stop == "all_exhausted" ? DatasetMix::Stop::kAllExhausted
                                       : DatasetMix::Stop::kAllExhaustedOnce;
  mix.seed = of_mix.count("seed", 0, 0);
  node.also_called("sources", {"mixture", "datasets", "probabilities", "weights"});
  if (!mix.sources.empty()) dataset.mix = std::move(mix);
}

// Reads `task` and `keep`: the results of an earlier task as records, and which of them count.
void read_earlier_results(ConfigNode& node, const ExperimentConfig& experiment, DatasetConfig& dataset) {
  const std::string named = experiment.task_of(node.optional_text("task").value_or(""));
  ConfigNode of_results = node.only_if(
      node.has("task"), "is given without `task` (only results have such fields); name a task, or remove it");
  dataset.keep = of_results.text_map("keep");
  node.also_called("keep", {"filter", "where"});
  if (named.empty()) return;
  dataset.results_fields = true;
  const auto& earlier = experiment.earlier;
  if (std::find(earlier.begin(), earlier.end(), named) != earlier.end()) {
    dataset.task = named;
    dataset.paths = {experiment.folder() + "/" + named + ".h5"};
  } else if (is_plain_name(named)) {
    const std::string nearest = nearest_name(named, earlier);
    node.reject("task", "no task before this one is named {} (its texts would be the records); {}", printable(named),
                nearest.empty() ? "name one, or the results file of another run"
                                : fmt::format("did you mean {}?", printable(nearest)));
  } else {
    dataset.paths = {named};
  }
}

// fields: reads the keys that name the fields of a record.
DatasetConfig read_dataset_with(ConfigNode& task, const ExperimentConfig* experiment,
                                const std::function<void(ConfigNode&, DatasetConfig&)>& fields) {
  ConfigNode node = task.section("dataset");
  DatasetConfig dataset;
  const bool of_task = experiment != nullptr && node.has("task");
  dataset.paths =
      node.only_if(!node.has("sources") && !of_task,
                   "is given together with `sources` or `task` (files are joined in order, or drawn by weight); remove "
                   "one")
          .texts("path");
  read_sources(node, dataset);
  if (experiment != nullptr) read_earlier_results(node, *experiment, dataset);
  if (of_task && node.has("sources"))
    node.reject("task", "is given together with `sources` (the records are files or results); remove one");
  experiment != nullptr ? node.one_of({"path", "sources", "task"}) : node.one_of({"path", "sources"});
  dataset.config = node.optional_text("config").value_or("");
  dataset.split = node.optional_text("split").value_or("");
  fields(node, dataset);
  dataset.key_field = node.optional_text("key").value_or("");
  if (const auto limit = node.optional_integer("limit", 0)) dataset.limit = static_cast<std::uint64_t>(*limit);
  node.also_called("path",
                   {"file", "files", "data_files", "dataset", "train_file", "train_files", "train_path", "data_path"});
  node.also_called("config", {"subset", "config_name", "dataset_config", "dataset_name"});
  node.also_called("split", {"dataset_split", "train_split"});
  node.also_called("key", {"id", "id_column"});
  node.also_called("limit", {"num_records", "max_samples", "num_samples"});
  read_slice(task, dataset);
  return dataset;
}

void read_pair_fields(ConfigNode& node, DatasetConfig& dataset, bool margins) {
  dataset.whole_record = true;
  dataset.prompt_field = node.optional_text("prompt").value_or("");
  dataset.chosen_field = node.text("chosen", "chosen");
  dataset.rejected_field = node.text("rejected", "rejected");
  ConfigNode of_rewards =
      node.only_if(margins, "is given without objective: reward (only its loss has a margin); remove it");
  dataset.margin_field = of_rewards.optional_text("margin").value_or("");
}

}  // namespace

DatasetConfig read_dataset(ConfigNode& task, bool whole_records, const ExperimentConfig* experiment) {
  return read_dataset_with(task, experiment, [&](ConfigNode& node, DatasetConfig& dataset) {
    dataset.whole_record = whole_records;  // the task names the fields itself
    if (!whole_records) read_fields(node, dataset);
  });
}

DatasetConfig read_dataset_or_pairs(ConfigNode& task, bool pairs, bool margins) {
  return read_dataset_with(task, nullptr, [&](ConfigNode& node, DatasetConfig& dataset) {
    ConfigNode of_texts =
        node.only_if(!pairs,
                     "is given with pairs of answers (their fields are chosen, rejected and prompt, texts or lists of "
                     "messages); remove it");
    read_fields(of_texts, dataset);
    ConfigNode of_pairs = node.only_if(
        pairs, "is given without pairs of answers (only those have it); set objective: dpo or reward, or remove it");
    DatasetConfig unused;
    read_pair_fields(of_pairs, pairs ? dataset : unused, margins);
  });
}

ExperimentConfig read_experiment_config(ConfigNode& root) {
  ExperimentConfig experiment;
  experiment.name = root.text("name");
  root.text_form("name", kPlainName);
  if (!experiment.name.empty() && !is_plain_name(experiment.name)) {
    root.reject("name", "\"{}\" cannot name a folder (letters, digits, _ and - can, at most 100); choose another",
                printable(experiment.name, 120));
  }
  experiment.seed = root.count("seed", 0, 0);
  read_output(root, experiment);
  if (std::optional<ConfigNode> model = root.optional_section("model")) {
    experiment.has_model = true;
    experiment.model = read_shared_model(*model);
  }
  experiment.layout = read_layout(root);
  experiment.run = read_run(root);
  experiment.plan = read_plan(root, experiment.layout);
  root.also_called("seed", {"random_seed", "manual_seed"});
  root.also_called("name", {"run_name", "experiment"});
  root.also_called("output.directory", {"output_dir", "out_dir", "output_directory"});
  return experiment;
}

}  // namespace magister
