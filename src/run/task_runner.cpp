// The life of a task in the order in which it is lived; see task_runner.h.
#include "magister/run/task_runner.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/core/units_of_measure.h"
#include "magister/model/partition.h"
#include "magister/run/device_group.h"
#include "magister/run/earlier_tasks.h"
#include "magister/run/memory_plan.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/run_log.h"
#include "magister/run/shard_model.h"
#include "magister/run/unit_loop.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

PlanNumbers numbers_of(const SamplePlan& plan) {
  return {plan.num_samples, plan.num_tokens, plan.num_units, plan.max_key_bytes, plan.longest_sample};
}

// Equal for any number of ranks and any restart.
std::string plan_sha256(const SamplePlan& plan, const SampleRules& rules) {
  return sha256_hex(fmt::format("samples {} tokens {} units {} unit_tokens {} lengths {:016x}", plan.num_samples,
                                plan.num_tokens, plan.num_units, rules.unit_tokens, plan.lengths_digest));
}

Attributes root_attributes(const Task& task, const RunContext& context, std::uint64_t format_version,
                           const Attributes& identity, const std::string& plan) {
  Attributes root = {{"format", "magister." + task.kind()},
                     {"format_version", format_version},
                     {"software", "magister"},
                     {"software_version", MAGISTER_VERSION},
                     {"experiment", context.experiment_yaml}};
  root.insert(root.end(), identity.begin(), identity.end());
  root.emplace_back("plan_sha256", plan);
  return root;
}

// What the file system must still give to a file that was made sparse. Local.
std::uint64_t missing_bytes(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return 0;
  const auto size = static_cast<std::uint64_t>(status.st_size),
             there = static_cast<std::uint64_t>(status.st_blocks) * 512;
  return size - std::min(size, there);
}

// Local signs, and at most ten times a second what other ranks were told: a stop reaches every rank between two passes.
StopPoll shared_stop(const StopSign& stop, UnitTickets& tickets) {
  constexpr std::int64_t kPause = 100'000'000;
  struct State {
    std::atomic<std::int64_t> next_look{0};
    std::atomic<bool> told{false};
  };
  return [&stop, &tickets, state = std::make_shared<State>()] {
    if (stop.raised() || state->told.load(std::memory_order_relaxed)) return true;
    const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    std::int64_t next = state->next_look.load(std::memory_order_relaxed);
    if (now < next || !state->next_look.compare_exchange_strong(next, now + kPause)) return false;
    if (tickets.stop_requested()) state->told = true;
    return state->told.load();
  };
}

// Of the experiment, as far as the task can use it.
LayoutConfig layout_of(const Task& task, const RunContext& context) {
  LayoutConfig layout = context.experiment.layout;
  MAGISTER_CHECK(!layout.shares.mixed() || task.runs_model(), ExitCode::kConfig,
                 "{}: groups of {}, and {} is a task of kind {} (every rank trains with a whole copy of the model, so "
                 "there are no groups); leave layout.gpus_per_group out, in an experiment of its own if need be",
                 layout.sizes_place, layout.shares.sizes(), task.name(), task.kind());
  layout.gpus_usable = task.uses_gpus();
  if (context.part) {
    layout.place_in_job = context.part->place;
    layout.most_threads = context.part->most_threads;
  }
  const bool has_gpus = !layout.cpu_only && !discover_gpus().empty(), left_idle = has_gpus && !layout.gpus_usable;
  // A training has a whole copy of the model on every rank, whatever a pass of the model would need.
  if (has_gpus && layout.gpus_usable && !task.runs_model() && layout.gpus_per_group == 0) layout.gpus_per_group = 1;
  if (context.world.max(std::uint64_t{left_idle ? 1u : 0u}) != 0 && context.world.rank() == 0)
    log_warning("{}: this task of kind {} does not compute on GPUs yet; the ranks' CPUs do", task.name(), task.kind());
  return layout;
}

void check_head(const Task& task, const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  if (checkpoint.section().none || task.head() == Task::Head::kAny ||
      (task.head() == Task::Head::kLabels) == config.is_classifier())
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

TaskRunner::TaskRunner(const Task& task, RunContext context, std::optional<int> plan_ranks)
    : task_(task),
      context_(std::move(context)),
      checkpoint_(model_by_now(task.model_section(), context_, model_stands_in_)),
      layout_(sized_layout(context_, layout_of(task, context_), task, checkpoint_,
                           plan_ranks.value_or(context_.world.size()))),
      num_ranks_(plan_ranks.value_or(context_.world.size())),
      group_(plan_ranks ? std::nullopt : std::optional(GpuGroup::resolve(context_.world, layout_))),
      devices_(group_ ? group_->table() : plan_layout(context_.world, num_ranks_, layout_)),
      model_(open_model(context_.world, checkpoint_,
                        layout_.gpus_usable ? queue_of(devices_, context_.world.rank()) : std::nullopt,
                        gpus_of(devices_, context_.world.rank()))),
      data_(task.data(context_)),
      dataset_(Dataset::open(context_.world, data_.config, context_.stop_poll())) {
  check_head(task_, checkpoint_);
  tp_size_ = group_ ? group_->tp_size() : devices_.front().group_size;
  shares_ = layout_.shares.mixed() ? layout_.shares : GroupShares(tp_size_);
  model_.shards_on_host = group_ ? shards_on_host(context_.world, *group_) : shards_on_host(devices_);
  if (context_.part) model_.shards_on_host = context_.part->shards_on_host;
  model_.kept.store = context_.weights;
  if (!checkpoint_.section().none) {
    // Refuses what cannot be divided.
    for (const auto& part : shares_.parts())
      partition_for(checkpoint_.config(), group_ && part.size == tp_size_ ? group_->first_tp_rank() : 0, part.size);
    const auto memory_of = [&](int size) {
      return model_.device_memory(size, task.pass_shape(model_.pass_limits()), 0);
    };
    check_host_memory(context_.world, model_, memory_of(tp_size_), {},
                      host_bytes([&](std::size_t i) { return sum_of(memory_of(shares_.parts()[i].size)); }));
  }
  // What a task refuses for one size it refuses on every rank.
  for (const auto& part : shares_.parts()) {
    jobs_.push_back(task_.open({context_, checkpoint_, model_, dataset_, part.size, num_ranks_, data_.stands_in}));
    if (part.size == tp_size_) job_ = jobs_.back().get();
  }
  check_first_record();
}

double TaskRunner::cost() const {
  constexpr double kTokens = 256;  // of a record: they are not counted before its task begins
  const auto records = static_cast<double>(dataset_.records().size());
  if (checkpoint_.section().none) return records;
  return flops_of(task_.model_work(records, records * kTokens),
                  static_cast<double>(checkpoint_.config().parameters_a_token()));
}

int TaskRunner::most_groups() const {
  constexpr std::uint64_t kMost = 1'000'000;
  return static_cast<int>(
      std::clamp<std::uint64_t>(task_.divides_records() ? dataset_.records().size() : kMost, 1, kMost));
}

int TaskRunner::ranks_a_group() const {
  if (shares_.mixed()) return num_ranks_;  // every part of the world would need a group of each size
  std::map<int, std::set<int>> ranks;      // by group
  for (const DeviceRow& row : devices_) ranks[row.group_index].insert(row.world_rank);
  const std::size_t size = ranks.begin()->second.size();
  // Some groups are one rank of many devices, others several of few: the world cannot be cut into parts of so many ranks.
  const bool all =
      std::all_of(ranks.begin(), ranks.end(), [&](const auto& group) { return group.second.size() == size; });
  return all ? static_cast<int>(size) : num_ranks_;
}

namespace {

// Of the devices, where groups of some size are done before the others.
double used_share(const PlanReport& report) {
  double longest = 1;
  for (const auto& one : report.sizes) {
    const double share = static_cast<double>(one.units) / static_cast<double>(report.num_units),
                 devices = one.size * one.groups / static_cast<double>(report.devices.size());
    longest = std::max(longest, share / devices);
  }
  return 1 / longest;
}

}  // namespace

// Nothing where the lengths are not known, or no model computes.
std::optional<std::string> TaskRunner::time_note(const PlanReport& report) const {
  if (checkpoint_.section().none || report.num_tokens == 0 || report.num_units_done == report.num_units) return {};
  const ModelWork work =
      task_.model_work(static_cast<double>(report.num_samples), static_cast<double>(report.num_tokens));
  const auto parameters = static_cast<double>(checkpoint_.config().parameters_a_token());
  std::set<std::string> hosts;
  for (const DeviceRow& row : report.devices) hosts.insert(row.host);
  const gpu::Queue host;
  const double devices = static_cast<double>(model_.gpu ? report.devices.size() : hosts.size());
  const double left = 1 - static_cast<double>(report.num_units_done) / static_cast<double>(report.num_units);
  const Speed speed = measured_speed(model_.gpu ? *model_.gpu : host);
  if (speed.flops <= 0) return {};
  const double seconds =
      left / (model_.gpu ? used_share(report) : 1) *
      seconds_of(work, parameters, parameters * static_cast<double>(at::elementSize(model_.dtype)), speed, devices);
  return fmt::format("{} or more: {:.2g} FLOPs on {} of {:.2g} FLOP/s, as measured here", format_duration(seconds),
                     flops_of(work, parameters),
                     format_count(static_cast<std::uint64_t>(devices), model_.gpu ? "GPU" : "host"), speed.flops);
}

// A field that is missing, a template that does not fit: every record has them, so the first one tells before any work.
void TaskRunner::check_first_record() {
  const SampleRules rules = job_->rules();
  const IndexRange records = dataset_.records();
  if (!rules.encode || records.size() == 0 || data_.stands_in) return;
  dataset_.for_each({records.begin, records.begin + 1}, [&](Record&& record) { rules.encode(record); });
}

std::string TaskRunner::working_path() const {
  return job_->packs() ? packed_later_path(context_.results_path) : context_.results_path;
}

// What must be equal for two runs to belong to one results file. Collective over the world.
Attributes TaskRunner::identity() {
  Attributes all = {{"config_sha256", sha256_hex(context_.config_yaml)}};
  const auto add = [&all](const Attributes& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(checkpoint_.identity(context_.world, context_.stop_poll()));
  leave_if_stopped(context_.world, context_.stop);
  const IndexRange slice = dataset_.records();
  add({{"dataset_sha256", dataset_.sha256()}, {"dataset_format", dataset_.formats()}});
  add(job_->identity());
  add({{"dtype", dtype_name(model_.dtype)}, {"device", model_.device_kind()}});
  if (!shares_.mixed()) add({{"tp_size", static_cast<std::uint64_t>(tp_size_)}});
  // Units are counted from a file's first one; a merged file's are those of its parts.
  if (shares_.mixed()) add({{"tp_sizes", shares_.sizes()}, {"tp_shares", shares_.shares()}, {"tp_first_units", "0"}});
  add({{"source_records", dataset_.num_source_records()}, {"slice_begin", slice.begin}, {"slice_end", slice.end}});
  if (const std::string products = model_.bf16_products(); !products.empty()) add({{"bf16_products", products}});
  return all;
}

// The final file of a job that packs is made again when the packing was cut short: only if what stands there is this task's.
void TaskRunner::refuse_foreign_pack(const Attributes& expected) const {
  if (!job_->packs() || state_everywhere(context_.world, context_.results_path) != ResultsFile::State::kPartial) return;
  Attributes ours = {{"format", "magister." + task_.kind()}};
  ours.insert(ours.end(), expected.begin(), expected.end());
  check_attributes_everywhere(context_.world, context_.results_path + ".partial", ours);
}

namespace {

// For what reads the results and computes nothing: a complete file is complete on every CPU, and a login node may plan for others.
Attributes on_any_cpu(Attributes expected) {
  std::erase_if(expected, [](const auto& entry) { return entry.first.ends_with("bf16_products"); });
  return expected;
}

}  // namespace

bool TaskRunner::is_complete(const Attributes& expected) {
  if (state_everywhere(context_.world, context_.results_path) != ResultsFile::State::kComplete) return false;
  check_attributes_everywhere(context_.world, context_.results_path, on_any_cpu(expected));
  job_->check_complete();
  return true;
}

ExitCode TaskRunner::run() {
  const Communicator& world = context_.world;
  const std::string working = working_path();
  make_folder(world, fs::path(context_.results_path).parent_path().string());
  const ResultsLock lock(world, context_.results_path, context_.held);
  if (context_.fresh) {
    job_->put_aside();
    put_aside(world, context_.results_path);
    if (job_->packs()) put_aside(world, working);
  }
  job_->open_results();
  const Attributes expected = identity();
  if (is_complete(expected)) {
    // Of a run that was killed between the last two steps.
    if (job_->packs() && world.rank() == 0) remove_if_ours(working + ".partial", expected);
    log_info("{}: {} is complete already; nothing to do (--fresh puts it aside and starts over)", task_.name(),
             context_.results_path);
    return ExitCode::kDone;
  }
  refuse_foreign_pack(expected);
  const bool resumes = state_everywhere(world, working) == ResultsFile::State::kPartial;
  if (resumes) check_free_space(world, fs::path(working).parent_path().string(), missing_bytes(working + ".partial"));
  ResultsFile file = resumes ? resume(expected) : create(expected);
  const PlanNumbers numbers = stored_numbers(working + ".partial", file.num_units());
  const ExitCode code = compute(file, numbers, expected);
  return code == ExitCode::kDone ? finish(file, numbers, expected) : code;
}

ResultsFile TaskRunner::resume(const Attributes& expected) {
  const PhaseTimes::Span span(times_, "check what is there");
  return ResultsFile::resume(context_.world, working_path(), expected, context_.experiment.results_access,
                             context_.stop_poll());
}

ResultsFile TaskRunner::create(const Attributes& expected) {
  const Communicator& world = context_.world;
  const std::string path = working_path(), folder = fs::path(path).parent_path().string();
  const SampleRules rules = job_->rules();
  const auto tokenized = [&] {
    const PhaseTimes::Span span(times_, "tokenise");
    return SamplePlan::make(world, dataset_, rules, folder, context_.stop);
  };
  SamplePlan plan = tokenized();
  const PhaseTimes::Span span(times_, "create the file");
  if (plan.num_cut > 0) {
    log_info("{}: {} records are longer than max_length {} and were {}", task_.name(), plan.num_cut, rules.max_length,
             rules.overflow == Overflow::kWindow ? "cut into windows" : "truncated");
  }
  // What cannot be done leaves no file behind, which another experiment would find in its way.
  job_->check_samples(plan);
  check_memory(numbers_of(plan));
  TaskResults results = job_->results(numbers_of(plan));
  ResultsSpec spec;
  spec.columns = std::move(results.columns);
  spec.num_units = plan.num_units;
  spec.checks_inputs = true;
  spec.default_plot_column = results.default_plot_column;
  spec.attributes = root_attributes(task_, context_, results.format_version, expected, plan_sha256(plan, rules));
  spec.attributes.emplace_back("num_samples", plan.num_samples);
  spec.attributes.emplace_back("num_tokens", plan.num_tokens);
  if (job_->keeps_widths()) {
    spec.attributes.emplace_back("key_bytes", plan.max_key_bytes);
    spec.attributes.emplace_back("longest_sample", plan.longest_sample);
  }
  const std::uint64_t bytes = results_bytes(spec);
  check_free_space(world, folder, bytes + results.packed_bytes, results.made_smaller_by);
  leave_if_stopped(world, context_.stop);
  ResultsFile file = ResultsFile::create(world, path, spec, context_.experiment.results_access);
  plan.write_fixed_columns(file);
  file.freeze();
  context_.log.event("plan", {{"task", task_.name()},
                              {"samples", plan.num_samples},
                              {"tokens", plan.num_tokens},
                              {"units", plan.num_units},
                              {"bytes", bytes}});
  return file;
}

PlanNumbers TaskRunner::stored_numbers(const std::string& path, std::uint64_t num_units) const {
  const auto number = [&](const char* of) { return ResultsFile::read_number(context_.world, path, of); };
  PlanNumbers numbers{number("num_samples"), number("num_tokens"), num_units};
  if (!job_->keeps_widths()) return numbers;
  numbers.key_bytes = number("key_bytes");
  numbers.longest_sample = number("longest_sample");
  return numbers;
}

MemoryParts TaskRunner::memory(const TaskJob& job, int size, const PlanNumbers& numbers, std::uint64_t pages) const {
  MemoryParts parts = job.memory(numbers);
  return parts.empty() && !checkpoint_.section().none
             ? model_.device_memory(size, task_.pass_shape(model_.pass_limits()), pages)
             : parts;
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
  return host_bytes([&](std::size_t i) { return sum_of(memory(*jobs_[i], shares_.parts()[i].size, numbers, pages)); });
}

MemoryParts TaskRunner::check_memory(const PlanNumbers& numbers) const {
  const std::uint64_t pages = context_.world.min(job_->cache_pages(numbers.longest_sample));
  MemoryParts parts = memory(*job_, tp_size_, numbers, pages);
  job_->check_memory(numbers);
  check_host_memory(context_.world, model_, parts, job_->host_memory(numbers), host_bytes(numbers, pages));
  return parts;
}

// Frees what earlier tasks left and this one does not use. What stands there beside a model without quantisation, whose loss is measured first,
// would need memory twice, so that is freed, too.
void TaskRunner::keep_weights(WeightStore& store, const Attributes& expected, nlohmann::ordered_json& log_fields) {
  std::vector<std::string> names = job_->keep_weights(store, expected);
  if (checkpoint_.section().none && names.empty()) return;
  const auto kept = [&](const std::string& name) { return store.has(name); };
  if (!names.empty()) {
    auto& others = log_fields["other_weights_kept"] = nlohmann::ordered_json::array();
    for (const std::string& name : names) others.push_back(kept(name));
  }
  if (task_.model_section().quantization_loss > 0) store.keep_only(names);
  if (task_.runs_model() && !checkpoint_.section().none) names.push_back(model_.keep_weights(store, expected, ""));
  log_fields["weights_kept"] = model_.kept.are_there();
  store.keep_only(std::move(names));
}

ExitCode TaskRunner::compute(ResultsFile& file, const PlanNumbers& numbers, const Attributes& expected) {
  MAGISTER_CHECK(file.any_thread() || context_.world.max(static_cast<std::uint64_t>(group_->groups_here())) == 1,
                 ExitCode::kConfig,
                 "output.driver: mpio with ranks that hold several groups (each group writes by itself, and one thread "
                 "of a rank may use MPI-IO); use another driver, or start a rank for every group");
  const auto num_pages = static_cast<std::int64_t>(context_.world.min(job_->cache_pages(numbers.longest_sample)));
  const MemoryParts parts = check_memory(numbers);
  nlohmann::ordered_json log_fields = model_.log_fields();
  if (context_.weights != nullptr) keep_weights(*context_.weights, expected, log_fields);
  const std::optional<LossPlan> loss = plan_quantization_loss(
      context_, *group_,
      {task_.name(), task_.model_section().quantization_loss, model_, file, expected, job_->decision()});
  return run_unit_loop({context_, *group_, file, task_.name(), times_, std::move(log_fields)},
                       [&](const UnitWork& work) {
                         const std::function<bool()> stop_wanted = shared_stop(context_.stop, work.tickets);
                         const ModelRun run{*group_,     file,     work,   model_,
                                            stop_wanted, loss,     times_, task_.pass_shape(model_.pass_limits()),
                                            parts,       num_pages};
                         job_->work(run, numbers);
                       });
}

// False: the job was asked to stop; all of it is done again by the next run.
bool TaskRunner::finish_on_rank_zero(const ResultsFile& file, const PlanNumbers& numbers, const Attributes& expected) {
  if (!job_->report(file, numbers)) return false;
  if (!job_->packs()) return true;
  const std::string running = working_path() + ".partial";
  fail_point("task.pack.begin");
  const Attributes root = root_attributes(task_, context_, job_->results(numbers).format_version, expected,
                                          ResultsFile::read_text(running, "plan_sha256"));
  if (!job_->pack(file, numbers, context_.results_path, root)) return false;
  fail_point("task.pack.done");
  ::unlink(running.c_str());
  return true;
}

ExitCode TaskRunner::finish(ResultsFile& file, const PlanNumbers& numbers, const Attributes& expected) {
  const Communicator& world = context_.world;
  std::uint64_t finished = 0;
  if (world.rank() == 0) finished = finish_on_rank_zero(file, numbers, expected) ? 1 : 0;
  world.wait_for_all();  // sleeps: packing may take long
  world.broadcast(&finished, sizeof finished, 0);
  if (finished == 0) {
    log_info("{}: stopped cleanly, all units are there; run the same command again for the last step", task_.name());
    return ExitCode::kStopped;
  }
  if (!job_->packs()) file.complete(world);
  log_info("{}: {} is complete", task_.name(), context_.results_path);
  return ExitCode::kDone;
}

namespace {

// What of a model's files an earlier task makes, and what is planned with meanwhile.
std::vector<std::pair<std::string, std::string>> stand_in_notes(const ModelSection& model,
                                                                const Checkpoint& checkpoint) {
  std::vector<std::pair<std::string, std::string>> notes;
  const auto add = [&](const char* what, const std::string& path, const std::string& task) {
    if (task.empty()) return;
    notes.emplace_back(
        what, fmt::format("not there yet; planned with {}, from which {} starts", printable(path, 4096), task));
  };
  add("weights", checkpoint.path(), model.task);
  add("config", checkpoint.path(), model.config_task);
  add("tokenizer", checkpoint.tokenizer_path(), model.tokenizer_task);
  if (!model.adapter_task.empty())
    notes.emplace_back("adapter",
                       fmt::format("not there yet; planned without it, which {} trains", model.adapter_task));
  return notes;
}

}  // namespace

PlanReport TaskRunner::plan() {
  PlanReport report;
  report.devices = devices_;
  plan_devices(report, {checkpoint_.config(), model_.dtype, model_.quantization, model_.layers()});
  report.free_bytes = free_bytes_for(context_.results_path);
  std::uint64_t longest = task_.pass_shape(model_.pass_limits()).sequence_tokens;
  if (data_.stands_in || !job_->inputs_exist()) {
    report.num_samples = dataset_.records().size();
    report.notes = {{"lengths", "unknown until the tasks before this one have run"}};
  } else {
    job_->open_results();
    // Whose results a file of this name holds is not known without the model.
    if (awaits_earlier() || !plan_from_file(report)) plan_samples(report);
    longest = report.longest_sample;
  }
  if (model_stands_in_) {
    for (auto& note : stand_in_notes(task_.model_section(), checkpoint_)) report.notes.push_back(std::move(note));
  }
  const PlanNumbers numbers{report.num_samples, report.num_tokens, report.num_units, 1, longest};
  plan_sizes(report, numbers);
  const MemoryParts on_host = job_->host_memory(numbers);
  std::string host_parts;
  for (const auto& [name, bytes] : on_host)
    host_parts += fmt::format("{}{} {}", host_parts.empty() ? "" : ", ", name, format_bytes(bytes));
  if (!on_host.empty())
    report.notes.emplace_back("host memory", fmt::format("{} a rank: {}", format_bytes(sum_of(on_host)), host_parts));
  for (auto& note : job_->memory_notes(numbers)) report.notes.push_back(std::move(note));
  if (context_.world.rank() == 0) {
    if (std::optional<std::string> time = time_note(report)) report.notes.emplace_back("time", *std::move(time));
  }
  job_->check_memory(numbers);
  check_device_memory(report);
  check_host_memory(context_.world, model_, report.device_parts, on_host,
                    host_bytes(numbers, job_->cache_pages(longest)));
  return report;
}

void TaskRunner::plan_sizes(PlanReport& report, const PlanNumbers& numbers) const {
  const std::vector<std::uint64_t> units = shares_.units_by_part(report.num_units);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const int size = shares_.parts()[i].size;
    MemoryParts parts = memory(*jobs_[i], size, numbers, jobs_[i]->cache_pages(numbers.longest_sample));
    if (shares_.mixed()) report.sizes.push_back({size, 0, units[i], parts});
    if (i > 0 && sum_of(parts) <= report.device_bytes) continue;
    report.device_bytes = sum_of(parts);
    report.device_parts = std::move(parts);
  }
  std::set<int> seen;
  for (const DeviceRow& row : report.devices) {
    if (shares_.mixed() && seen.insert(row.group_index).second) ++report.sizes[shares_.part_of(row.group_size)].groups;
  }
}

void TaskRunner::plan_samples(PlanReport& report) {
  const SampleRules rules = job_->rules();
  const SamplePlan samples = SamplePlan::measure(context_.world, dataset_, rules, context_.stop);
  const PlanNumbers numbers = numbers_of(samples);
  job_->check_samples(samples);
  const TaskResults results = job_->results(numbers);
  report.num_samples = samples.num_samples;
  report.num_units = samples.num_units;
  report.num_tokens = samples.num_tokens;
  report.longest_sample = samples.longest_sample;
  ResultsSpec spec;
  spec.columns = results.columns;
  spec.num_units = samples.num_units;
  spec.checks_inputs = true;
  report.results_bytes = report.needed_bytes = results_bytes(spec) + results.packed_bytes;
  report.notes = {{"records", std::to_string(dataset_.records().size())},
                  {"longest sample", fmt::format("{} tokens", samples.longest_sample)},
                  {"longer than max_length", std::to_string(samples.num_cut)}};
  for (auto& note : job_->notes(numbers)) report.notes.push_back(std::move(note));
}

// An earlier run's file says what is left to do, and is refused here as `run` would refuse it. False: there is none.
bool TaskRunner::plan_from_file(PlanReport& report) {
  const Communicator& world = context_.world;
  const std::string working = working_path();
  const ResultsFile::State final_file = state_everywhere(world, context_.results_path);
  const bool done = final_file == ResultsFile::State::kComplete;
  const bool resumes = !done && state_everywhere(world, working) == ResultsFile::State::kPartial;
  if (!resumes && final_file == ResultsFile::State::kAbsent) return false;
  const Attributes expected = identity();
  refuse_foreign_pack(expected);
  if (!done && !resumes) return false;
  const std::string path = done ? context_.results_path : working + ".partial";
  check_attributes_everywhere(world, path, on_any_cpu(expected));
  report.num_samples = ResultsFile::read_number(world, path, "num_samples");
  report.num_tokens = ResultsFile::read_number(world, path, "num_tokens");
  const UnitCounts counts = unit_counts_everywhere(world, path);
  report.num_units = counts.units;
  report.num_units_done = counts.done;
  report.results_bytes = fs::file_size(path);
  report.needed_bytes = done ? 0 : missing_bytes(path);
  if (!done) {
    const PlanNumbers numbers = stored_numbers(path, counts.units);
    report.longest_sample = numbers.longest_sample;
    report.needed_bytes += job_->results(numbers).packed_bytes;
  }
  report.notes = {{"earlier run", done ? "complete: nothing to do" : "is resumed"}};
  return true;
}

}  // namespace magister
