// The keys of a task that writes texts which say how their tokens are drawn.
#pragma once

#include "magister/core/config.h"
#include "magister/engine/sampler.h"

namespace magister {

// temperature, top_k, top_p, min_p, repetition_penalty; no bias.
SamplingParams read_sampling(ConfigNode& node);

// What transformers, vLLM and the OpenAI protocol call the keys of lengths, ends and batches.
void declare_engine_names(ConfigNode& node);

}  // namespace magister
