// Reads the keys of `task: teacher_logits`, in the order in which the resolved experiment shows them. The task checks
// what depends on the model: top_k against the vocabulary, max_length against the positions.
#include "tasks/teacher_logits/config.h"

#include "magister/core/error.h"

namespace magister {
namespace {

// Reads the encoding of the rows.
void read_encoding(ConfigNode& node, TeacherLogitsConfig& config) {
  using Kind = TeacherEncoding::Kind;
  const std::string encoding = node.choice("encoding", {"plain", "compact", "sampled"}, "plain");
  config.encoding = encoding == "compact" ? Kind::kCompact : encoding == "sampled" ? Kind::kSampled : Kind::kPlain;
  const bool sampled = config.encoding == Kind::kSampled, packed = config.encoding != Kind::kPlain;
  config.top_k = node.count("top_k", sampled ? 8 : 64, 1, 1 << 24);
  config.logprob_f16 = node.choice("logprob_dtype", {"f32", "f16"}, packed ? "f16" : "f32") == "f16";
  if (packed && !config.logprob_f16) {
    node.reject("logprob_dtype", "f32 with `encoding: {}` (it stores f16); remove it, or choose `encoding: plain`",
                encoding);
  }
  const auto draws = node.optional_integer("tail_draws", 1, 1 << 16);
  if (draws && !sampled) {
    node.reject("tail_draws", "tail_draws without `encoding: sampled` (nothing is drawn); remove it or set encoding");
  }
  config.tail_draws = sampled ? static_cast<std::uint64_t>(draws.value_or(12)) : 0;
}

}  // namespace

TeacherLogitsConfig read_teacher_logits_config(ConfigNode& node, const ExperimentConfig& experiment) {
  TeacherLogitsConfig config;
  config.name = read_task_name(node, "teacher");
  config.model = read_task_model(node, experiment);
  config.dataset = read_dataset(node);
  config.max_length = LengthKey(node, "max_length", 2048, 1, 1 << 24);
  config.length_place = node.place("max_length");
  config.top_k_place = node.place("top_k");
  const std::string overflow = node.choice("overflow", {"truncate", "window", "error"}, "truncate");
  config.overflow = overflow == "window"  ? Overflow::kWindow
                    : overflow == "error" ? Overflow::kError
                                          : Overflow::kTruncate;
  const auto stride = node.optional_integer("stride", 1, 1 << 24);
  config.stride = static_cast<std::uint64_t>(stride.value_or(0));
  config.stride_place = node.place("stride");
  if (stride && config.overflow != Overflow::kWindow) {
    node.reject("stride",
                "stride without `overflow: window` (nothing would be cut into windows); remove it or set overflow");
  } else if (config.max_length.is_written() && config.stride > config.max_length.tokens()) {
    node.reject("stride", "{} is more than max_length {} (tokens between two windows would be lost); choose 1 to {}",
                config.stride, config.max_length.tokens(), config.max_length.tokens());
  }
  read_encoding(node, config);
  config.seed = experiment.seed;
  config.assistant_only = node.choice("score", {"all", "assistant"}, "all") == "assistant";
  if (config.assistant_only && config.dataset.messages_field.empty()) {
    node.reject("score",
                "assistant without chats (only in a chat something is the assistant's); name the chats with "
                "dataset.messages, or remove it");
  }
  config.unit_tokens = node.count("unit_tokens", 2048, 1, 1 << 24);
  node.also_called("max_length", {"max_model_len", "max_seq_length", "max_seq_len", "block_size", "context_length"});
  node.also_called("overflow", {"truncation"});
  node.also_called("stride", {"overlap"});
  node.also_called("top_k", {"top_logprobs", "logprobs", "prompt_logprobs", "k", "num_logits"});
  node.also_called("encoding", {"compression", "codec"});
  node.also_called("unit_tokens",
                   {"batch_size", "per_device_batch_size", "per_device_eval_batch_size", "max_num_batched_tokens"});
  return config;
}

}  // namespace magister
