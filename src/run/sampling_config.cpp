// See sampling_config.h.
#include "magister/run/sampling_config.h"

namespace magister {

SamplingParams read_sampling(ConfigNode& node) {
  SamplingParams sampling;
  sampling.temperature = node.number("temperature", 1.0, 0.0, 100.0);
  sampling.top_k = node.integer("top_k", 0, 0, 1 << 24);
  sampling.top_p = node.number("top_p", 1.0, 1e-9, 1.0);
  sampling.min_p = node.number("min_p", 0.0, 0.0, 1.0);
  sampling.repetition_penalty = node.number("repetition_penalty", 1.0, 0.01, 100.0);
  node.also_called("temperature", {"temp", "do_sample"});
  node.also_called("repetition_penalty", {"repeat_penalty", "frequency_penalty", "presence_penalty"});
  return sampling;
}

}  // namespace magister
