// Reads the keys of `task: score`, in the order in which the resolved experiment shows them.
#include "tasks/score/config.h"

#include "magister/core/error.h"

namespace magister {

namespace {

constexpr const char* kOfModels =
    "is given together with `score.verifier` (a rule computes without a model); remove it";

void read_verifier(ConfigNode section, bool of_answers, ScoreVerifier& verifier) {
  const std::string kind = section.choice("verifier", {"exact", "math", "regex"}, "exact");
  verifier.rule = read_verifier_config(section, kind);
  ConfigNode of_records = section.only_if(
      !of_answers, "is given together with `answers` (the completions are a generate task's); remove one of them");
  verifier.completion_field = of_records.text("completion", "completion");
  section.also_called("completion", {"prediction", "response", "output", "text"});
}

}  // namespace

ScoreConfig read_score_config(ConfigNode& node, const ExperimentConfig& experiment) {
  ScoreConfig config;
  config.name = read_task_name(node, "score");
  const bool verifies = node.has("score");
  ConfigNode of_model = node.only_if(!verifies, kOfModels);
  config.model = read_task_model(of_model, experiment);
  config.dataset = read_dataset(node, /*whole_records=*/verifies);
  config.answers = experiment.task_of(node.optional_text("answers").value_or(""));
  config.answers_place = node.place("answers");
  ConfigNode of_verifier = node.only_if(verifies, "is given without `score.verifier`; add it");
  if (verifies) {
    config.model = {};
    config.model.none = true;
  }
  ScoreVerifier verifier;
  read_verifier(of_verifier.section("score"), !config.answers.empty(), verifier);
  if (verifies) config.verifier = verifier;
  config.max_length = LengthKey(of_model, "max_length", 2048, 1, 1 << 24);
  config.length_place = node.place("max_length");
  config.overflow = of_model.choice("overflow", {"truncate", "error"}, "truncate") == "error" ? Overflow::kError
                                                                                              : Overflow::kTruncate;
  config.unit_tokens = of_model.count("unit_tokens", 2048, 1, 1 << 24);
  config.share_prefixes = of_model.boolean("share_prefixes", true);
  config.function_place = node.place("function");
  const std::string function = of_model.choice("function", {"none", "sigmoid", "softmax"}, "none");
  config.function = function == "sigmoid"   ? ScoreFunction::kSigmoid
                    : function == "softmax" ? ScoreFunction::kSoftmax
                                            : ScoreFunction::kNone;
  node.also_called("function", {"function_to_apply", "activation"});
  node.also_called("share_prefixes", {"enable_prefix_caching"});
  node.also_called("max_length", {"max_model_len", "max_seq_length", "max_seq_len"});
  node.also_called("overflow", {"truncation"});
  node.also_called("unit_tokens", {"batch_size", "per_device_eval_batch_size", "max_num_batched_tokens"});
  return config;
}

}  // namespace magister
