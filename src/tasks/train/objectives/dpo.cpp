// `dpo`: learns from the log-probabilities of two answers, of which one is preferred, relative to those by the
// reference, which is the first weights. The log-probabilities by the reference are computed once before the first step
// and kept in the working file, so there is never a second model in memory. A row of the file counts only if its crc32c
// agrees: a kill at any time, or a disk that writes in another order, costs the work of a unit and nothing else.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/io/crc32c.h"
#include "magister/parallel/gathered.h"
#include "magister/train/gradient_tree.h"
#include "tasks/train/objective.h"
#include "tasks/train/objectives/pairs.h"

namespace magister {
namespace {

constexpr const char* kLogprob = "/reference/logprob";
constexpr const char* kCrc = "/reference/crc32c";
constexpr std::uint64_t kMostTokens = 1024;  // tokens of a micro-batch, as in BatchPlan

using Row = std::array<float, 2>;  // an f64 as the sum of two f32

Row row_of(double value) {
  const auto high = static_cast<float>(value);
  return {high, static_cast<float>(value - high)};
}
double value_of(const Row& row) { return static_cast<double>(row[0]) + row[1]; }

std::uint32_t crc_of(std::uint64_t sample, const Row& row) {
  const std::uint32_t begun = crc32c(0, std::as_bytes(std::span(&sample, 1)));
  return crc32c(begun, std::as_bytes(std::span(row)));
}

// The stored values of a unit; nullopt: they must be computed.
std::optional<std::vector<double>> stored(const ResultsFile& file, const IndexRange& samples) {
  std::vector<Row> rows(samples.size());
  std::vector<std::uint32_t> crcs(samples.size());
  file.read(kLogprob, samples.begin, std::as_writable_bytes(std::span(rows)));
  file.read(kCrc, samples.begin, std::as_writable_bytes(std::span(crcs)));
  std::vector<double> values;
  for (std::uint64_t i = 0; i < samples.size(); ++i) {
    if (crcs[i] != crc_of(samples.begin + i, rows[i])) return std::nullopt;
    values.push_back(value_of(rows[i]));
  }
  return values;
}

void store(ResultsFile& file, const IndexRange& samples, std::vector<double>& values) {
  std::vector<Row> rows;
  std::vector<std::uint32_t> crcs;
  for (double& value : values) {
    rows.push_back(row_of(value));
    crcs.push_back(crc_of(samples.begin + crcs.size(), rows.back()));
    value = value_of(rows.back());  // the value that a restart would read
  }
  file.write(kLogprob, samples.begin, std::as_bytes(std::span(rows)));
  fail_point("train.reference.written");
  file.write(kCrc, samples.begin, std::as_bytes(std::span(crcs)));
}

// Micro-batches of the pairs that take part, in order, with about kMostTokens tokens each.
std::vector<Samples> micro_batches(const TrainingSamples& data, const IndexRange& pairs) {
  std::vector<Samples> batches;
  std::uint64_t filled = 0;
  for (std::uint64_t pair = pairs.begin; pair < pairs.end; ++pair) {
    const std::uint64_t length = data.lengths()[pair];
    if (length == 0) continue;
    if (batches.empty() || filled + length > kMostTokens) {
      batches.emplace_back();
      filled = 0;
    }
    batches.back().push_back(pair);
    filled += length;
  }
  return batches;
}

std::vector<double> computed(const StepInputs& inputs, const std::function<void()>& heartbeat,
                             const IndexRange& samples) {
  MAGISTER_ASSERT(samples.begin % 2 == 0 && samples.end % 2 == 0);
  const std::vector<Samples> plan = micro_batches(inputs.samples, {samples.begin / 2, samples.end / 2});
  std::vector<MicroBatch> batches;
  batches.reserve(plan.size());
  for (const Samples& pairs : plan) batches.push_back(inputs.samples.micro_batch(pairs));
  const auto sums = inputs.trainer.sequence_logprobs(batches, heartbeat);
  std::vector<double> values(samples.size(), 0.0);
  for (std::size_t b = 0; b < plan.size(); ++b) {
    for (std::size_t i = 0; i < plan[b].size(); ++i) {
      for (const std::size_t side : {0, 1}) {
        const double value = sums[b][2 * i + side];
        MAGISTER_CHECK(std::isfinite(value), ExitCode::kData,
                       "record {}: the reference model's log-probability of an answer is {} (no loss can be compared "
                       "with it); look at this record and at the model's weights",
                       inputs.samples.key(plan[b][i]), value);
        values[2 * plan[b][i] + side - samples.begin] = value;
      }
    }
  }
  return values;
}

// The log-probabilities by the reference, by sample, nats; 0 for pairs that take no part. The units of the file are
// divided among the ranks, and the micro-batches of a unit depend on the unit alone. Values of an earlier run are taken
// from the file. nullopt: the job was asked to stop. Throws Error(kData) with the record if a log-probability is not
// finite. Collective over the world.
std::optional<std::vector<double>> reference_logprobs(const StepInputs& inputs,
                                                      const std::function<void()>& heartbeat) {
  ResultsFile& file = inputs.run.file;
  const std::uint64_t num_units = file.num_units();
  const int ranks = inputs.world.size();
  const IndexRange own = micro_batches_of(num_units, inputs.world.rank(), ranks);
  const std::uint64_t most = inputs.world.max(own.size());
  std::vector<double> values;
  for (std::uint64_t i = 0; i < most; ++i) {
    if (inputs.stop()) return std::nullopt;
    if (i >= own.size()) continue;
    heartbeat();
    const IndexRange samples = file.unit(own.begin + i).samples;
    std::optional<std::vector<double>> of_unit = stored(file, samples);
    if (!of_unit) {
      fail_point("train.reference.unit");
      of_unit = computed(inputs, heartbeat, samples);
      store(file, samples, *of_unit);
    }
    values.insert(values.end(), of_unit->begin(), of_unit->end());
  }
  return gathered(inputs.world, values);
}

class OpenDpo final : public OpenPairs {
 public:
  using OpenPairs::OpenPairs;

  std::vector<ColumnSpec> working_columns(std::uint64_t num_samples) const override;
  bool begin_steps(const StepInputs& inputs) override {
    const ModelRun& run = inputs.run;
    const PhaseTimes::Span span(run.times, "reference");
    const auto heartbeat = [&run] { run.work.live_together("compute the reference's log-probabilities"); };
    auto logprobs = reference_logprobs(inputs, heartbeat);
    if (!logprobs) return false;
    references_ = std::move(*logprobs);
    return inputs.held_out == nullptr || inputs.held_out->compare(inputs.trainer, inputs.stop, heartbeat);
  }
};

std::vector<ColumnSpec> OpenDpo::working_columns(std::uint64_t num_samples) const {
  using Extent = ColumnSpec::Extent;
  return {{kLogprob, ColumnType::kF32, num_samples, 2,
           "log-probability of the answer's tokens by the weights that the training begins with, as the sum of two "
           "numbers",
           "nat", Extent::kSamples},
          {kCrc, ColumnType::kU32, num_samples, 0, "crc32c of the sample's number and its row of logprob", "",
           Extent::kSamples}};
}

// Names and defaults are those of TRL's DPOConfig.
void read_dpo_keys(ConfigNode& task, const ExperimentConfig&, TrainConfig& config) {
  ConfigNode node = task.only_if(config.trainer.objective == ObjectiveKind::kDpo,
                                 "is given with another objective; set objective: dpo, or remove it");
  ConfigNode section = node.section("dpo");
  PreferenceOptions& options = config.trainer.preference;
  using Loss = PreferenceOptions::Loss;
  const std::string loss = section.choice("loss_type", {"sigmoid", "hinge", "ipo", "robust"}, "sigmoid");
  options.loss = loss == "hinge"    ? Loss::kHinge
                 : loss == "ipo"    ? Loss::kIpo
                 : loss == "robust" ? Loss::kRobust
                                    : Loss::kSigmoid;
  options.beta = section.number("beta", 0.1, 0, 1e6);
  if (options.beta == 0) section.reject("beta", "0 (nothing would be learnt); choose for example 0.1");
  section.range_end("beta", ConfigNode::RangeEnd::kAbove, 0);
  ConfigNode of_robust = section.only_if(
      loss == "robust",
      "is given without `loss_type: robust` (no other loss knows of wrong labels); set it, or remove label_smoothing");
  options.label_smoothing = of_robust.number("label_smoothing", 0.0, 0, 0.499999);
  config.truncation = section.choice("truncation_mode", {"keep_start", "keep_end"}, "keep_start") == "keep_end"
                          ? TruncationMode::kKeepEnd
                          : TruncationMode::kKeepStart;
  section.also_called("loss_type", {"loss"});
}

}  // namespace

constinit const Objective kDpoObjective = {.kind = ObjectiveKind::kDpo,
                                           .name = "dpo",
                                           .default_lr = 1e-6,
                                           .items = "pairs",
                                           .held_out_curves = &kHeldOutPairCurves,
                                           .read = read_dpo_keys,
                                           .of_pairs = [](const TrainConfig&) { return true; },
                                           .marks = [](const TrainConfig&) { return "1: of the answer, and learnt"; },
                                           .curves = [](const TrainConfig&) -> const CurveSet& { return kPairCurves; },
                                           .open = open_as<OpenDpo>};

}  // namespace magister
