// A task in one file, as a user would add it: the Euclidean length of every token's last hidden state. The program is
// magister with this additional task; own_task_test.py runs it. Lock, resume, units, files, check and merge are missing
// here because no task writes them itself.
#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "magister/app/application.h"
#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/run/shard_model.h"
#include "magister/run/step.h"
#include "magister/run/task_kinds.h"
#include "magister/run/unit_samples.h"
#include "magister/tasks/registry.h"

using namespace magister;

namespace {

constexpr Column<float> kNorm{"/norm/l2", "length of the last hidden state", "", ColumnSpec::Extent::kRows};

class NormWorker final : public ShardModel {
 public:
  using ShardModel::ShardModel;
  void run_units() override {
    while (const auto index = claim_for_group(group_, base_.work.tickets, base_.stop_wanted)) {
      watch("compute", static_cast<std::int64_t>(*index));
      const Unit unit = base_.file.unit(*index);
      const at::Tensor hidden_TD = model_.forward(pack_sequences(sample_tokens(base_.file, unit)));
      const at::Tensor norm_T = hidden_TD.to(at::kFloat).norm(2, 1).cpu().contiguous();
      if (!writer_) continue;
      const auto* bytes = static_cast<const std::byte*>(norm_T.const_data_ptr());
      writer_->submit(unit, {{kNorm.path, {bytes, bytes + norm_T.nbytes()}}});
      base_.work.report_progress();
    }
    drain();
  }
};

class NormJob final : public TaskJob {
 public:
  explicit NormJob(const TaskInputs& inputs)
      : tokenizer_(inputs.checkpoint.tokenizer()), vocab_size_(inputs.checkpoint.config().vocab_size) {}
  SampleRules rules() override {
    SampleRules rules;
    rules.max_length = 512;
    rules.unit_tokens = 64;
    rules.vocab_size = vocab_size_;
    rules.tokenizer = &tokenizer_;
    return rules;
  }
  TaskResults results(const PlanNumbers& plan) const override {
    TaskResults results;
    results.columns = sample_columns(plan.num_samples, plan.num_tokens, plan.key_bytes,
                                     "rows of sample i are offset[i] .. offset[i+1] of /tokens and /norm", "tokens");
    results.columns.push_back(kNorm.spec(plan.num_tokens));
    results.default_plot_column = kNorm.path;
    return results;
  }
  std::unique_ptr<ShardWorker> worker(ShardContext shard) override {
    return std::make_unique<NormWorker>(std::move(shard));
  }

 private:
  const Tokenizer& tokenizer_;
  std::int64_t vocab_size_;
};

class Norms final : public Task {
 public:
  Norms(std::string name, ModelSection model, DatasetConfig dataset)
      : Task("norms", std::move(name), std::move(model), std::move(dataset)) {}
  PassShape pass_shape(const PassLimits&) const override { return {.tokens = 64, .row_bytes = 64 * 4}; }
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override { return std::make_unique<NormJob>(inputs); }
};

bool has_norms(const ResultsReader& file, FaultList& faults) {
  if (kNorm.fits(file.find(kNorm))) return true;
  faults.add("dataset {} is missing or not f32", kNorm.path);
  return false;
}

void check_norms(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  for (const float norm : file.rows(kNorm, unit.rows.begin, unit.rows.size())) {
    if (!std::isfinite(norm) || norm < 0) faults.add("unit {}: the length {} is not a length", unit.index, norm);
  }
}

const ResultsSchema kSchema = {.format = "magister.norms", .columns = has_norms, .rows = check_norms};

// An export of this task alone: one length per line.
void export_lengths(const ResultsReader& file, const ExportedColumns&, const std::string& out) {
  MAGISTER_CHECK(file.find(kNorm) != nullptr, ExitCode::kData,
                 "{}: has no {} (nothing to export); export it --to jsonl", printable(file.path()), kNorm.path);
  write_text(out, [&](const TextSink& sink) {
    for (const float norm : file.rows(kNorm, 0, file.find(kNorm)->num_rows)) sink(fmt::format("{}\n", norm));
  });
}
constexpr ExportFormat kFormats[] = {{"lengths", true, export_lengths}};

std::unique_ptr<Task> read_norms(ConfigNode& node, const ExperimentConfig& experiment) {
  std::string name = read_task_name(node, "norms");
  ModelSection model = read_task_model(node, experiment);
  return std::make_unique<Norms>(std::move(name), std::move(model), read_dataset(node));
}

// A task without records, units and results: its step is all that runs.
class CountRanks final : public Step {
 public:
  explicit CountRanks(RunContext context) : context_(std::move(context)) {}
  ExitCode run() override {
    if (context_.world.rank() == 0) log_info("counted {} ranks", context_.world.size());
    return ExitCode::kDone;
  }
  PlanReport plan() override {
    PlanReport report;
    report.notes.emplace_back("counts", "ranks");
    return report;
  }

 private:
  RunContext context_;
};

class Count final : public Task {
 public:
  explicit Count(std::string name) : Task("count", std::move(name), {}, {}) {}
  std::unique_ptr<Step> step(RunContext context, std::optional<int>) override {
    return std::make_unique<CountRanks>(std::move(context));
  }
};

std::unique_ptr<Task> read_count(ConfigNode& node, const ExperimentConfig&) {
  return std::make_unique<Count>(read_task_name(node, "count"));
}

}  // namespace

int main(int argc, char** argv) {
  static StopSign stop;
  const MpiSession session(&argc, &argv);
  install_signal_handlers(stop);
  std::vector<TaskKind> kinds(built_in_tasks().begin(), built_in_tasks().end());
  kinds.push_back({.name = "norms", .read = read_norms, .schema = &kSchema, .exports = kFormats});
  kinds.push_back({.name = "count", .read = read_count});
  return run_application(Communicator::world(), {argv + 1, argv + argc}, stop, kinds);
}
