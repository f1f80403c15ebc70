// The keys for sampling of tasks that generate texts.
#pragma once

#include "magister/core/config.h"
#include "magister/engine/sampler.h"

namespace magister {

// temperature, top_k, top_p, min_p, repetition_penalty; no bias.
SamplingParams read_sampling(ConfigNode& node);

// Declares the names that transformers, vLLM and the OpenAI protocol have for the keys of lengths, ends and batches.
void declare_engine_names(ConfigNode& node);

}  // namespace magister
