// See sampling_config.h.
#include "magister/runtime/sampling_config.h"

namespace magister {

SamplingParams read_sampling(ConfigNode& node) {
  SamplingParams sampling;
  sampling.temperature = node.number("temperature", 1.0, 0.0, 100.0);
  // As in vLLM: with a smaller divisor logits would soon exceed f32, and the best token has all of the probability long
  // before.
  constexpr double kGreedyBelow = 1e-5;
  if (sampling.temperature < kGreedyBelow) sampling.temperature = 0;
  sampling.top_k = node.integer("top_k", 0, 0, 1 << 24);
  sampling.top_p = node.number("top_p", 1.0, 1e-9, 1.0);
  sampling.min_p = node.number("min_p", 0.0, 0.0, 1.0);
  sampling.repetition_penalty = node.number("repetition_penalty", 1.0, 0.01, 100.0);
  node.also_called("temperature", {"temp", "do_sample"});
  node.also_called("repetition_penalty", {"repeat_penalty"});
  return sampling;
}

void declare_engine_names(ConfigNode& node) {
  node.also_called("max_new_tokens",
                   {"max_tokens", "max_completion_tokens", "max_gen_toks", "max_length", "n_predict"});
  node.also_called("max_prompt_length",
                   {"max_model_len", "max_input_length", "truncate_prompt_tokens", "max_seq_length"});
  node.also_called("guide", {"guidance", "value_model", "value_guidance"});
  node.also_called("stop", {"stop_strings", "stop_sequences", "until"});
  node.also_called("max_sequences", {"max_num_seqs", "batch_size", "per_device_batch_size",
                                     "per_device_eval_batch_size", "max_batch_size"});
  node.also_called("token_budget", {"max_num_batched_tokens", "max_batch_tokens"});
  node.also_called("share_prefixes", {"enable_prefix_caching", "prefix_caching"});
}

}  // namespace magister
