// The keys of `task: score`, in the order in which the resolved experiment shows them.
#include "tasks/score/config.h"

#include "magister/core/error.h"

namespace magister {

ScoreConfig read_score_config(ConfigNode& node, const ExperimentConfig& experiment) {
  ScoreConfig config;
  config.name = read_task_name(node, "score");
  config.model = read_task_model(node, experiment);
  config.dataset = read_dataset(node);
  config.max_length = static_cast<std::uint64_t>(node.integer("max_length", 2048, 1, 1 << 24));
  config.length_place = node.place("max_length");
  config.overflow =
      node.choice("overflow", {"truncate", "error"}, "truncate") == "error" ? Overflow::kError : Overflow::kTruncate;
  config.unit_tokens = static_cast<std::uint64_t>(node.integer("unit_tokens", 2048, 1, 1 << 24));
  config.function_place = node.place("function");
  const std::string function = node.choice("function", {"none", "sigmoid", "softmax"}, "none");
  config.function = function == "sigmoid"   ? ScoreFunction::kSigmoid
                    : function == "softmax" ? ScoreFunction::kSoftmax
                                            : ScoreFunction::kNone;
  node.also_called("function", {"function_to_apply", "activation"});
  node.also_called("max_length", {"max_model_len", "max_seq_length", "max_seq_len"});
  node.also_called("overflow", {"truncation"});
  node.also_called("unit_tokens", {"batch_size", "per_device_eval_batch_size", "max_num_batched_tokens"});
  return config;
}

}  // namespace magister
