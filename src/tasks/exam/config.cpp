// The keys of `task: exam`, in the order in which the resolved experiment shows them.
#include "tasks/exam/config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/runtime/sampling_config.h"
#include "tasks/exam/exports.h"

namespace magister {
namespace {

constexpr const char* kCheckNames[kNumExamChecks] = {"blind",   "closed_book", "single_key",
                                                     "support", "alignment",   "wording"};

// The place of a name in a list; its end for an unknown one, which is then refused with the known names.
template <typename Names>
std::size_t place_in(ConfigNode& node, const char* key, const Names& names, const std::string& name) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) {
    std::vector<std::string> known(std::begin(names), std::end(names));
    node.reject(key, "\"{}\" (it is none of {}); name one of them", printable(name, 40),
                fmt::format("{}", fmt::join(known, ", ")));
  }
  return static_cast<std::size_t>(found - std::begin(names));
}

void read_items(ConfigNode& task, ExamConfig& config) {
  ConfigNode node = task.section("items");
  config.items = node.count("per_objective", 10, 1, 1000);
  const std::vector<std::string> names = {"choice", "true_false", "short_answer", "numeric"};
  std::vector<std::string> kinds = node.optional_texts("kinds");
  if (kinds.empty()) kinds = {"choice"};
  for (const std::string& name : kinds) {
    const std::size_t at = place_in(node, "kinds", names, name);
    if (at < names.size()) config.kinds.push_back(static_cast<ItemKind>(at));
  }
  if (config.kinds.empty()) config.kinds = {ItemKind::kChoice};
  config.choices = node.count("choices", 4, 2, 10);
  ConfigNode shares = node.section("difficulty");
  config.difficulty = {shares.number("easy", 0.3, 0, 1e6), shares.number("medium", 0.5, 0, 1e6),
                       shares.number("hard", 0.2, 0, 1e6)};
  const double sum = config.difficulty[0] + config.difficulty[1] + config.difficulty[2];
  if (!(sum > 0)) node.reject("difficulty", "easy, medium and hard are all 0 (no item has a difficulty); raise one");
  for (double& share : config.difficulty) share /= sum > 0 ? sum : 1;
  config.bloom = node.boolean("bloom", true);
  node.also_called("per_objective", {"num_problems", "count", "n", "num_items"});
  node.also_called("choices", {"num_choices", "options"});
}

void read_objectives_section(ConfigNode& task, ExamConfig& config) {
  ConfigNode node = task.section("objectives");
  config.auto_objectives = static_cast<std::uint64_t>(node.optional_integer("auto", 1, 10'000).value_or(0));
  ConfigNode listed = node.only_if(config.auto_objectives == 0,
                                   "is given together with `auto` (objectives are a list, or are written from the "
                                   "source); remove one of them");
  config.objectives = listed.text("path");
  config.objectives_place = node.place(config.auto_objectives > 0 ? "auto" : "path");
  node.one_of({"path", "auto"});
}

void read_validator(ConfigNode& task, const ExperimentConfig& experiment, ExamConfig& config) {
  ConfigNode node = task.section("validator");
  ExamLimits& limits = config.limits_of_checks;
  if (std::optional<ConfigNode> model = node.optional_section("model"))
    config.validator = read_judge_model(std::move(*model), experiment);
  std::vector<std::string> rejecting = node.optional_texts("reject");
  if (!node.has("reject")) rejecting = {"blind", "single_key", "support", "alignment", "wording"};
  if (rejecting.size() == 1 && rejecting[0] == "none") rejecting.clear();
  for (const std::string& name : rejecting) {
    const std::size_t at = place_in(node, "reject", kCheckNames, name);
    if (at < kNumExamChecks) limits.rejects[at] = true;
  }
  limits.blind = node.number("blind", 0.5, 0, 1);
  limits.closed_book = node.number("closed_book", 0.9, 0, 1);
  limits.log_odds = node.number("log_odds", 0.0, -100, 100);
  limits.duplicate = node.number("duplicate", 0.7, 0.01, 1);
}

void read_bounds(ConfigNode& task, ExamBounds& bounds) {
  ConfigNode node = task.section("bounds");
  bounds.generate = node.count("generate", 5, 1, 20);
  bounds.validate = node.count("validate", 3, 1, 20);
  bounds.review = node.count("review", 5, 1, 20);
}

void read_exports(ConfigNode& node, ExamConfig& config) {
  std::vector<std::string> known;
  for (const ExamExport& format : exam_exports()) known.emplace_back(format.name);
  config.exports = node.optional_texts("exports");
  node.outside_identity("exports");  // made from the results, and made again by `export`
  const bool only_choices = std::ranges::all_of(config.kinds, [](ItemKind kind) { return kind == ItemKind::kChoice; });
  for (const std::string& name : config.exports) {
    const std::size_t at = place_in(node, "exports", known, name);
    if (at < known.size() && exam_exports()[at].holds_choices_alone && !only_choices)
      node.reject("exports", "\"{}\" holds no items but single choice (items.kinds has others); remove it, or those",
                  name);
  }
  for (std::size_t i = 0; i < config.exports.size(); ++i) {
    if (std::find(config.exports.begin(), config.exports.begin() + static_cast<std::ptrdiff_t>(i), config.exports[i]) !=
        config.exports.begin() + static_cast<std::ptrdiff_t>(i))
      node.reject("exports", "\"{}\" is listed twice (a format is written once); remove one", config.exports[i]);
  }
}

}  // namespace

const char* name_of(ExamCheck check) { return kCheckNames[static_cast<std::size_t>(check)]; }

ExamConfig read_exam_config(ConfigNode& node, const ExperimentConfig& experiment) {
  ExamConfig config;
  config.name = read_task_name(node, "exam");
  config.seed = experiment.seed;
  config.model = read_task_model(node, experiment);
  ConfigNode source = node.section("source");
  config.source = source.texts("path");
  config.source_place = source.place("path");
  config.passage_tokens = source.count("passage_tokens", 256, 16, 1 << 20);
  config.passages = source.count("passages", 2, 1, 16);
  read_objectives_section(node, config);
  read_items(node, config);
  read_validator(node, experiment, config);
  read_bounds(node, config.bounds);
  config.title = node.optional_text("title").value_or("");
  node.outside_identity("title");
  read_exports(node, config);
  config.sampling = read_sampling(node);
  config.use_chat_template = node.choice("chat_template", {"auto", "off"}, "auto") == "auto";
  config.length_place = node.place("max_prompt_length");
  config.max_prompt_length = LengthKey(node, "max_prompt_length", 2048, 1, 1 << 24);
  config.max_new_tokens = LengthKey(node, "max_new_tokens", 512, 32, 1 << 16);
  static_cast<BatchKeys&>(config) = read_batch_keys(node, 512);
  declare_engine_names(node);
  node.also_called("source", {"chapters", "content", "input_content", "dataset"});
  node.also_called("objectives", {"learning_objectives"});
  node.also_called("exports", {"formats", "output_formats"});
  return config;
}

}  // namespace magister
