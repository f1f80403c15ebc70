// Opens and checks a task, and counts the devices and the memory that it needs; see task_runner.h. Then task_life.cpp
// runs it, or task_plan.cpp plans it.
#include "magister/run/task_runner.h"

#include <algorithm>
#include <map>
#include <set>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/model/partition.h"
#include "magister/run/earlier_tasks.h"
#include "magister/runtime/device_group.h"
#include "magister/runtime/memory_plan.h"

namespace magister {
namespace {

// The layout of the experiment, as far as the task can use it.
LayoutConfig layout_of(const Task& task, const RunContext& context) {
  LayoutConfig layout = context.experiment.layout;
  MAGISTER_CHECK(!layout.shares.mixed() || task.traits().runs_model, ExitCode::kConfig,
                 "{}: groups of {}, and {} is a task of kind {} (every rank trains with a whole copy of the model, so "
                 "there are no groups); leave layout.gpus_per_group out, in an experiment of its own if need be",
                 layout.sizes_place, layout.shares.sizes(), task.name(), task.kind());
  layout.gpus_usable = true;
  if (context.part) {
    layout.place_in_job = context.part->place;
    layout.most_threads = context.part->most_threads;
  }
  // A training has a whole copy of the model on every rank, whatever size of group the model would need.
  const bool has_gpus = !layout.cpu_only && !discover_gpus().empty();
  if (has_gpus && !task.traits().runs_model && layout.gpus_per_group == 0) layout.gpus_per_group = 1;
  return layout;
}

// The memory that a group must hold at least. Passes that are larger than the task requires, because the device prefers
// them, may be halved.
GroupDemand demand_of(const Task& task, const RunContext& context, const Checkpoint& checkpoint) {
  GroupDemand demand{
      .checkpoint = checkpoint, .pass = task.pass_shape(kGpuPassLimits), .others = task.second_models(kGpuPassLimits)};
  for (SecondModel& other : demand.others) {
    bool is_placeholder = false;
    const std::string dtype = other.section.dtype;
    other.section = available_model(other.section, context, is_placeholder);
    other.section.dtype = dtype;
  }
  return demand;
}

void check_head(const Task& task, const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  const TaskTraits::Head head = task.traits().head;
  if (checkpoint.section().none || head == TaskTraits::Head::kAny ||
      (head == TaskTraits::Head::kLabels) == config.is_classifier())
    return;
  MAGISTER_CHECK(config.is_classifier(), ExitCode::kConfig,
                 "{}: {} is a language model (a task of kind {} reads a head of labels, as a sequence classifier or "
                 "reward model has it); name such a model, or use a task of another kind",
                 task.model_section().place, printable(checkpoint.path(), 4096), task.kind());
  fail(ExitCode::kConfig,
       "{}: {} is a classifier of {} labels (a task of kind {} reads a head over the vocabulary, which it does not "
       "have); use "
       "a language model, or `task: score`",
       task.model_section().place, printable(checkpoint.path(), 4096), config.labels.size(), task.kind());
}

}  // namespace

TaskRunner::TaskRunner(Task& task, RunContext context, std::optional<int> plan_ranks)
    : task_(task),
      context_(std::move(context)),
      checkpoint_(available_model(task.model_section(), context_, model_is_placeholder_)),
      lengths_(fit_lengths()),
      layout_(layout_while_hashing(plan_ranks)),
      num_ranks_(plan_ranks.value_or(context_.world.size())),
      group_(plan_ranks ? std::nullopt : std::optional(GpuGroup::resolve(context_.world, layout_))),
      devices_(group_ ? group_->table() : plan_layout(context_.world, num_ranks_, layout_)),
      model_(open_model(context_.world, checkpoint_, queue_of(devices_, context_.world.rank()),
                        gpus_of(devices_, context_.world.rank()))),
      data_(task.data(context_)),
      dataset_(Dataset::open(context_.world, data_.config, context_.stop_poll())) {
  check_head(task_, checkpoint_);
  tp_size_ = group_ ? group_->tp_size() : devices_.front().group_size;
  shares_ = layout_.shares.mixed() ? layout_.shares : GroupShares(tp_size_);
  model_.shards_on_host = group_ ? shards_on_host(context_.world, *group_) : shards_on_host(devices_);
  // plan.device_memory is the memory of a shard alone.
  const bool is_alone = plan_ranks && context_.experiment.plan.device_memory > 0;
  if (task_.traits().runs_model && !checkpoint_.section().none && !is_alone)
    model_.expect_sharing(context_.world, shares_.mixed() ? 0 : tp_size_, model_.shards_on_host,
                          num_ranks_ != context_.world.size());
  if (context_.part) model_.shards_on_host = context_.part->shards_on_host;
  model_.kept.store = context_.weights;
  if (!checkpoint_.section().none) {
    // Refuses a model that cannot be divided.
    for (const auto& part : shares_.parts())
      partition_for(checkpoint_.config(), group_ && part.size == tp_size_ ? group_->first_tp_rank() : 0, part.size);
    const auto memory_of = [&](int size) {
      return model_.device_memory(size, task.pass_shape(model_.pass_limits()), 0);
    };
    check_host_memory(context_.world, model_, memory_of(tp_size_), {},
                      host_bytes([&](std::size_t i) { return sum_of(memory_of(shares_.parts()[i].size)); }));
  }
  // Every rank opens the task for every size, so all ranks refuse what the task refuses for one size.
  for (const auto& part : shares_.parts()) {
    jobs_.push_back(task_.open({.context = context_,
                                .checkpoint = checkpoint_,
                                .model = model_,
                                .dataset = dataset_,
                                .tp_size = part.size,
                                .num_ranks = num_ranks_,
                                .data_is_placeholder = data_.is_placeholder}));
    if (part.size == tp_size_) job_ = jobs_.back().get();
  }
  check_first_record();
}

Notes TaskRunner::fit_lengths() {
  if (checkpoint_.section().none) return {};
  task_.fit_to_records(context_);
  Notes notes = task_.fit_lengths(positions_of(checkpoint_.config()), [&](const ModelSection& section) {
    bool is_placeholder = false;
    return positions_of(Checkpoint(available_model(section, context_, is_placeholder)).config());
  });
  checkpoint_.fix_rope(task_.cached_tokens());
  if (context_.resolve) context_.resolve(context_);
  return notes;
}

// Starts to hash the model's files if this task runs first. Much of the hashing is done while devices, tokenizer and
// data are opened.
LayoutConfig TaskRunner::layout_while_hashing(const std::optional<int>& plan_ranks) {
  if (!plan_ranks && context_.earlier_tasks.empty() && !model_is_placeholder_)
    checkpoint_.begin_hashing(context_.world);
  LayoutConfig layout = layout_of(task_, context_);
  return sized_layout(context_.world, std::move(layout), demand_of(task_, context_, checkpoint_),
                      plan_ranks.value_or(context_.world.size()), context_.weights);
}

StepCost TaskRunner::cost() const {
  return {.ranks_a_group = ranks_a_group(),
          .threads_per_shard = group_ ? group_->threads_per_shard() : 0,
          .host_shards = model_.shards_on_host,
          .work = work(),
          .most_groups = most_groups()};
}

double TaskRunner::work() const {
  constexpr double kTokens = 256;  // per record; the real number is not known before the task begins
  const auto records = static_cast<double>(dataset_.records().size());
  if (checkpoint_.section().none) return records;
  return flops_of(task_.model_work(records, records * kTokens),
                  static_cast<double>(checkpoint_.config().parameters_a_token()));
}

int TaskRunner::most_groups() const {
  constexpr std::uint64_t kMost = 1'000'000;
  return static_cast<int>(
      std::clamp<std::uint64_t>(task_.traits().divides_records ? dataset_.records().size() : kMost, 1, kMost));
}

int TaskRunner::ranks_a_group() const {
  if (shares_.mixed()) return num_ranks_;  // every part of the world would need a group of each size
  std::map<int, std::set<int>> ranks;      // by group
  for (const DeviceRow& row : devices_) ranks[row.group_index].insert(row.world_rank);
  const std::size_t size = ranks.begin()->second.size();
  // If some groups are one rank with many devices and others several ranks with few, the world cannot be divided into
  // parts of one size.
  const bool all =
      std::all_of(ranks.begin(), ranks.end(), [&](const auto& group) { return group.second.size() == size; });
  return all ? static_cast<int>(size) : num_ranks_;
}

// A missing field or a template that does not fit affects every record, so the first record shows it before any work.
void TaskRunner::check_first_record() {
  const SampleRules rules = job_->rules();
  const IndexRange records = dataset_.records();
  if (!rules.encode || records.size() == 0 || data_.is_placeholder) return;
  dataset_.for_each({records.begin, records.begin + 1}, [&](Record&& record) { rules.encode(record); });
}

MemoryParts TaskRunner::device_parts(const MemoryDemand& demand, int size, std::uint64_t pages) const {
  return demand.device.empty() && !checkpoint_.section().none
             ? model_.device_memory(size, task_.pass_shape(model_.pass_limits()), pages)
             : demand.device;
}

std::uint64_t TaskRunner::host_bytes(const std::function<std::uint64_t(std::size_t part)>& bytes_of) const {
  if (!shares_.mixed()) return 0;
  std::vector<std::uint64_t> bytes;
  for (std::size_t i = 0; i < shares_.parts().size(); ++i) bytes.push_back(bytes_of(i));
  std::map<std::string, std::uint64_t> of_host;
  std::uint64_t most = 0;
  for (const DeviceRow& row : devices_)
    most = std::max(most, of_host[row.host] += bytes[shares_.part_of(row.group_size)]);
  return most;
}

std::uint64_t TaskRunner::host_bytes(const PlanNumbers& numbers, std::uint64_t pages) const {
  return host_bytes(
      [&](std::size_t i) { return sum_of(device_parts(jobs_[i]->demand(numbers), shares_.parts()[i].size, pages)); });
}

void TaskRunner::refuse_fault(const MemoryDemand& demand) const {
  for (const std::string& fault : context_.world.all_gather(demand.fault)) {
    if (!fault.empty()) fail(ExitCode::kConfig, "{}", fault);
  }
}

MemoryDemand TaskRunner::checked_demand(const PlanNumbers& numbers) const {
  MemoryDemand demand = job_->demand(numbers);
  demand.cache_pages = context_.world.min(demand.cache_pages);
  demand.device = device_parts(demand, tp_size_, demand.cache_pages);
  refuse_fault(demand);
  check_host_memory(context_.world, model_, demand.device, demand.host, host_bytes(numbers, demand.cache_pages));
  return demand;
}

}  // namespace magister
