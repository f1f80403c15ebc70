// TaskRunner: runs any task over units: open and check -> lock -> identity -> resume or create -> loop over units ->
// finish. `run` and `plan` both use it, so they refuse the same things with the same exit codes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "magister/core/error.h"
#include "magister/io/dataset/dataset.h"
#include "magister/io/results/results_file.h"
#include "magister/parallel/layout.h"
#include "magister/run/phase_times.h"
#include "magister/run/plan_report.h"
#include "magister/run/run_context.h"
#include "magister/run/step.h"
#include "magister/run/task.h"
#include "magister/runtime/checkpoint.h"
#include "magister/runtime/open_model.h"

namespace magister {

class TaskRunner final : public Step {
 public:
  // Opens model, tokenizer, data set and everything that belongs to the task, and checks them against each other and
  // against the first record. After this only records, disks and machines can be at fault. plan_ranks: plans the layout
  // of this number of ranks like the present ones, and run() is not called. Keeps a reference to task. Throws
  // Error(kStopped) on every rank if the job is asked to stop meanwhile. Collective over context.world.
  TaskRunner(Task& task, RunContext context, std::optional<int> plan_ranks = {});

  bool awaits_earlier() const override {
    return model_is_placeholder_ || data_.is_placeholder || job_->awaited().placeholder;
  }
  StepCost cost() const override;
  ExitCode run() override;
  PlanReport plan() override;

 private:
  int ranks_a_group() const;
  double work() const;
  int most_groups() const;
  Notes fit_lengths();
  LayoutConfig layout_while_hashing(const std::optional<int>& plan_ranks);
  std::string working_path() const;
  // The prefix of its keys in the experiment.
  std::string task_key() const { return fmt::format("tasks.{}.", context_.earlier_tasks.size()); }
  Attributes identity();
  void refuse_foreign_pack(const Attributes& expected) const;
  bool is_complete(const Attributes& expected);
  ResultsFile resume(const Attributes& expected);
  ResultsFile create(const Attributes& expected);
  PlanNumbers stored_numbers(const std::string& path, std::uint64_t num_units) const;
  void keep_weights(WeightStore& store, const Attributes& expected, nlohmann::ordered_json& log_fields);
  ExitCode compute(ResultsFile& file, const PlanNumbers& numbers, const Attributes& expected);
  ExitCode finish(ResultsFile& file, const PlanNumbers& numbers, const Attributes& expected);
  bool finish_on_rank_zero(const ResultsFile& file, const PlanNumbers& numbers, const Attributes& expected);
  void check_first_record();
  // Returns the memory of a device of a group of `size`, itemised.
  MemoryParts device_parts(const MemoryDemand& demand, int size, std::uint64_t pages) const;
  // Returns the memory of the shards on the host that needs most; 0: all shards need the same. bytes_of(): memory of
  // one device, by index in shares_.parts().
  std::uint64_t host_bytes(const std::function<std::uint64_t(std::size_t part)>& bytes_of) const;
  std::uint64_t host_bytes(const PlanNumbers& numbers, std::uint64_t pages) const;
  void plan_sizes(PlanReport& report, const PlanNumbers& numbers) const;
  // Throws Error(kConfig) on every rank if the demand of any rank has a fault. Collective over the world.
  void refuse_fault(const MemoryDemand& demand) const;
  // Returns the demand with the pages that all ranks have and all parts of a device. Refuses a demand that does not
  // fit. Collective over world.
  MemoryDemand checked_demand(const PlanNumbers& numbers) const;
  bool packs() const { return static_cast<bool>(job_->packing()); }
  void plan_samples(PlanReport& report);
  std::optional<std::string> time_note(const PlanReport& report) const;
  bool plan_from_file(PlanReport& report);
  // Returns PlanReport::first_prompt. Local.
  std::string first_prompt();
  // Says how many copies of the weights the CPU shards of a host have, and what `plan` assumes of it; "" for one shard.
  std::string copies_note() const;
  void check_cpu_memory(const PlanReport& report) const;

  Task& task_;
  RunContext context_;
  bool model_is_placeholder_;
  Checkpoint checkpoint_;
  Notes lengths_;
  LayoutConfig layout_;
  int num_ranks_;
  std::optional<GpuGroup> group_;   // set for a run, not for a plan
  std::vector<DeviceRow> devices_;  // of all ranks
  OpenModel model_;
  TaskData data_;
  Dataset dataset_;
  int tp_size_ = 1;
  GroupShares shares_;
  std::vector<std::unique_ptr<TaskJob>> jobs_;  // by index in shares_.parts()
  TaskJob* job_ = nullptr;                      // the one for this rank's groups
  PhaseTimes times_;
};

}  // namespace magister
