// TaskRunner: the life of a task, once for all of them: open and check -> lock -> identity -> resume or create -> loop over units ->
// finish. `run` and `plan` both go through it, so they refuse the same things with the same exit codes.
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
  // Opens model, tokenizer, data set and all that is the task's own, and checks them against each other and the first record: after
  // this only records, disks and machines can be at fault. plan_ranks: the layout of so many ranks like these is planned and run() is
  // not called. Throws Error(kStopped) on every rank when the job is asked to stop meanwhile. task is kept by reference.
  // Collective over context.world.
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
  LayoutConfig layout_beside_hashing(const std::optional<int>& plan_ranks);
  std::string working_path() const;
  // What stands before its keys in the experiment.
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
  // Memory of a device of a group of `size`, itemised.
  MemoryParts device_parts(const MemoryDemand& demand, int size, std::uint64_t pages) const;
  // Memory of the shards on the fullest host; 0: all shards need as much. bytes_of: of a device, by place in shares_.parts().
  std::uint64_t host_bytes(const std::function<std::uint64_t(std::size_t part)>& bytes_of) const;
  std::uint64_t host_bytes(const PlanNumbers& numbers, std::uint64_t pages) const;
  void plan_sizes(PlanReport& report, const PlanNumbers& numbers) const;
  // Throws Error(kConfig) on every rank where the demand of one is at fault. Collective over the world.
  void refuse_fault(const MemoryDemand& demand) const;
  // With the pages that all ranks have, and all parts of a device. Refuses what does not fit. Collective over world.
  MemoryDemand checked_demand(const PlanNumbers& numbers) const;
  bool packs() const { return static_cast<bool>(job_->packing()); }
  void plan_samples(PlanReport& report);
  std::optional<std::string> time_note(const PlanReport& report) const;
  bool plan_from_file(PlanReport& report);
  // As PlanReport has it. Local.
  std::string first_prompt();
  void check_cpu_memory(const PlanReport& report) const;

  Task& task_;
  RunContext context_;
  bool model_is_placeholder_;
  Checkpoint checkpoint_;
  Notes lengths_;
  LayoutConfig layout_;
  int num_ranks_;
  std::optional<GpuGroup> group_;   // of a run
  std::vector<DeviceRow> devices_;  // of all ranks
  OpenModel model_;
  TaskData data_;
  Dataset dataset_;
  int tp_size_ = 1;
  GroupShares shares_;
  std::vector<std::unique_ptr<TaskJob>> jobs_;  // by place in shares_.parts()
  TaskJob* job_ = nullptr;                      // that of this rank's groups
  PhaseTimes times_;
};

}  // namespace magister
