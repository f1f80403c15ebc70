// The loop of `generate`: every shard of this rank runs the generator over the records that its group draws.
#pragma once

#include <ATen/core/ScalarType.h>

#include <functional>

#include "magister/io/tensor_file.h"
#include "magister/model/model_config.h"
#include "magister/model/quantize.h"
#include "magister/parallel/layout.h"
#include "magister/tasks/generate_config.h"
#include "tasks/generate_columns.h"
#include "tasks/unit_loop.h"
#include "tasks/quantization_loss.h"

namespace magister {

struct GenerateRun {
  const GpuGroup& group;
  ResultsFile& file;
  const UnitWork& work;
  const ModelDescription& model;
  const TensorFile& weights;
  at::ScalarType dtype;
  QuantScheme quantization;
  const GenerateConfig& config;
  const GenerateShape& shape;
  const Tokenizer& tokenizer;
  const StopRules& rules;
  const SamplingParams& sampling;     // the experiment's, with logit_bias by id
  const Constraint* constraint;       // null: texts are free
  std::int64_t num_pages;             // of the cache, equal on every rank
  std::function<bool()> stop_wanted;  // asked between passes
  const std::optional<LossPlan>& loss;  // of quantisation, measured before the work
  PhaseTimes& times;
};

// Pages that a generator of this run has: for max_sequences texts of the longest prompt, or as many as fit into an eighth
// of the machine's memory, but always enough for one text. Local.
std::int64_t num_cache_pages(const ModelConfig& model, int tp_size, const GenerateConfig& config, std::uint64_t longest_prompt);

// Runs until no record is left or the job stops; committed records stay. Collective over the group.
void run_generate_units(const GenerateRun& run);

}  // namespace magister
