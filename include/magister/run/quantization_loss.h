// What quantisation costs, measured on the run's own text before its work: the same tokens through the model without
// quantisation, which is freed again, and through the one that the run uses. Perplexity of both, the mean of KL(without ||
// with) over all rows, and for a judge how many verdicts change sides. Beside the results, never inside: they do not
// depend on whether this was measured.
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

// What a task reads from the row after a prompt, to count how often quantisation changes it.
struct RowDecision {
  std::int32_t choice = -1;
  double log_odds = 0;  // nats
};

struct LossPlan {
  std::vector<std::vector<TokenId>> sequences;  // the first of the run, equal on every rank
  at::ScalarType plain_dtype = at::kFloat;
  std::string path;                 // <task>.quantization.json
  std::string task;                 // its name
  nlohmann::ordered_json identity;  // what the figures belong to; a file with the same is not measured again
  std::function<RowDecision(std::span<const float> logits_V)> score;  // of a judge: the verdict of a prompt's last row
  RunLog* log = nullptr;
};

struct LossQuestion {
  const std::string& task;
  std::int64_t tokens = 0;  // model.quantization_loss
  const OpenModel& model;
  const ResultsFile& file;                                     // holds /samples/offset and /tokens/id
  Attributes identity;                                         // of the results: config, model and data set count
  std::function<RowDecision(std::span<const float>)> score{};  // set: whole prompts alone are taken
};

// Nothing where no loss is asked for, where it stands in the file already, on ranks that do not belong to the first group,
// and, said in the log, where the memory of a host would not hold the model without quantisation. Collective over world.
std::optional<LossPlan> plan_quantization_loss(RunContext& context, const GpuGroup& group, LossQuestion question);

// The step that measures: loads the model without quantisation, runs it and frees it, then loads the one that the run uses into `instance`
// and compares; shard 0 prints, logs and writes. The two models are never in memory together. Returns the loaded model. Throws Error(kStopped) on every
// shard when one was asked to stop meanwhile. Collective over the instance's group.
Transformer& load_and_measure_loss(const LossPlan& plan, ModelInstance& instance, PhaseTimes& times);

}  // namespace magister
