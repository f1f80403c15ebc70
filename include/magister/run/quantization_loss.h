// Measures the loss of quantisation and of 8-bit pages on the run's own text before the work begins. The same tokens go
// through the model without either, which is then freed, and through the model that the run uses. The figures are the
// perplexity of both, the mean of KL(without || with) over all rows, and for a judge the number of verdicts that
// change. They are written next to the results, never into them: results do not depend on whether this was measured.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/model/transformer.h"
#include "magister/parallel/layout.h"
#include "magister/run/phase_times.h"
#include "magister/run/run_context.h"
#include "magister/runtime/model_instance.h"
#include "magister/runtime/open_model.h"

namespace magister {

class RunLog;

// A task's decision from the row after a prompt, to count how often quantisation changes it.
struct RowDecision {
  std::int32_t choice = -1;
  double log_odds = 0;  // nats
};

struct LossPlan {
  std::vector<std::vector<TokenId>> sequences;  // the first of the run, equal on every rank that has a plan
  at::ScalarType plain_dtype = at::kFloat;
  std::string path;                 // <task>.quantization.json
  std::string task;                 // its name
  nlohmann::ordered_json identity;  // what the figures were measured on; if the file has the same, nothing is measured
  std::function<RowDecision(std::span<const float> logits_V)>
      score;  // for a judge: the verdict from a prompt's last row
  RunLog* log = nullptr;
  std::string of = "quantisation";  // what costs the loss, for messages
  bool through_pages = false;       // passes have a cache, whose pages round keys and values
};

struct LossQuestion {
  const std::string& task;
  std::int64_t tokens = 0;  // model.quantization_loss
  const OpenModel& model;
  const ResultsFile& file;  // holds /samples/offset and /tokens/id
  Attributes identity;      // of the results; only config, model and data set are used
  std::function<RowDecision(std::span<const float>)> score{};  // set: only whole prompts are used
  bool has_cache = false;                                      // the task's passes have one
};

// Returns nothing if no loss is asked for, if the file has it already, on ranks outside the first group, and, with a
// message in the log, if the memory of a host or a GPU cannot hold the model without quantisation. Collective over
// world.
std::optional<LossPlan> plan_quantization_loss(RunContext& context, const GpuGroup& group, LossQuestion question);

// Loads the model without quantisation, runs it and frees it. Then loads the model that the run uses into `instance`
// and compares; shard 0 prints, logs and writes. The two models are never in memory together. Returns the loaded model.
// Throws Error(kStopped) on every shard if one was asked to stop meanwhile. Collective over the instance's group.
Transformer& load_and_measure_loss(const LossPlan& plan, ModelInstance& instance, PhaseTimes& times);

}  // namespace magister
