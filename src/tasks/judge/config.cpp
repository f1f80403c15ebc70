// The keys of `task: judge`, in the order in which the resolved experiment shows them.
#include "tasks/judge/config.h"

#include "magister/core/error.h"

namespace magister {
JudgeConfig read_judge_config(ConfigNode& node, const ExperimentConfig& experiment) {
  JudgeConfig config;
  config.name = read_task_name(node, "verdicts");
  config.model = read_task_model(node, experiment);
  config.dataset = read_dataset(node, /*whole_records=*/true, &experiment);
  config.answers = experiment.task_of(node.optional_text("answers").value_or(""));
  config.answers_place = node.place("answers");
  read_judge_mode(node, config, false);
  read_judge_prompts(node, config);
  read_judge_method(node, config);
  const std::string combine = node.choice("combine", {"mean_log_odds", "majority", "unanimous"}, "mean_log_odds");
  config.combine = combine == "majority"    ? JudgeCombine::kMajority
                   : combine == "unanimous" ? JudgeCombine::kUnanimous
                                            : JudgeCombine::kMeanLogOdds;
  for (const std::string& judge : node.optional_texts("panel")) config.panel.push_back(experiment.task_of(judge));
  config.panel_place = node.place("panel");
  read_judge_fields(node, config);
  config.label_field = node.optional_text("label").value_or("");
  node.outside_identity("label");  // for the summary, which can be made again
  read_judge_classes(node, config);
  node.range_end("classes", ConfigNode::RangeEnd::kMost, 26);  // of mode: choice; the schema knows no mode
  config.low_mass = node.number("low_mass", 0.5, 0.0, 1.0);
  read_judge_length(node, config);
  static_cast<BatchKeys&>(config) = read_batch_keys(node, 1024);
  node.also_called("max_new_tokens", {"max_tokens", "max_completion_tokens"});
  node.also_called("max_prompt_length", {"max_model_len", "max_length", "max_input_length", "max_seq_length"});
  node.also_called("max_sequences", {"max_num_seqs", "batch_size", "per_device_batch_size"});
  node.also_called("token_budget", {"max_num_batched_tokens"});
  node.also_called("share_prefixes", {"enable_prefix_caching"});
  node.also_called("prompt", {"system", "user", "prompt_template", "template"});
  return config;
}

}  // namespace magister
