// Plans a task: the same steps as a run up to its first unit, but nothing is written; see task_runner.h.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>

#include "magister/core/error.h"
#include "magister/core/units_of_measure.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/task_runner.h"
#include "magister/runtime/device_group.h"
#include "magister/runtime/memory_plan.h"
#include "magister/runtime/rope_length.h"
#include "run/task_files.h"

namespace magister {

namespace fs = std::filesystem;

namespace {

// The average share of the devices that compute, if groups of one size finish before the others.
double used_share(const PlanReport& report) {
  double longest = 1;
  for (const auto& one : report.sizes) {
    const double share = static_cast<double>(one.units) / static_cast<double>(report.num_units),
                 devices = one.size * one.groups / static_cast<double>(report.devices.size());
    longest = std::max(longest, share / devices);
  }
  return 1 / longest;
}

// A unit is computed by one group, so the busiest has a whole number of them: its share over an equal one.
double busiest_share(const PlanReport& report) {
  if (!report.sizes.empty()) return 1;  // groups of several sizes share the units by their speed
  const auto units = static_cast<double>(report.num_units), groups = static_cast<double>(report.num_groups);
  return units > 0 && groups > 0 ? std::ceil(units / groups) * groups / units : 1;
}

// The speed of the slowest card, if each of the planned cards was measured.
std::optional<Speed> planned_speed(const PlanReport& report) {
  std::optional<Speed> slowest;
  for (const DeviceRow& row : report.devices) {
    const std::optional<Speed> speed = row.gpu ? known_speed(row.gpu->name) : std::nullopt;
    if (!speed) return std::nullopt;
    if (!slowest || speed->flops < slowest->flops) slowest = speed;
  }
  return slowest;
}

const MemoryParts& parts_of(const PlanReport& report, int group_size) {
  for (const auto& one : report.sizes) {
    if (one.size == group_size) return one.device_parts;
  }
  return report.device_parts;
}

}  // namespace

// Nothing if the lengths are not known, if no model computes, or if a planned card was not measured.
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
  const Speed speed = model_.planned_gpu ? planned_speed(report).value_or(Speed{})
                                         : measured_speed(model_.gpu ? *model_.gpu : host, work.written > 0);
  if (speed.flops <= 0) return {};
  const double seconds =
      left * (model_.gpu && work.learnt == 0 ? busiest_share(report) : 1) / (model_.gpu ? used_share(report) : 1) *
      seconds_of(work, parameters, parameters * static_cast<double>(at::elementSize(model_.dtype)), speed, devices);
  return fmt::format("{} or more: {:.2g} FLOPs on {} of {:.2g} FLOP/s, as measured {}", format_duration(seconds),
                     flops_of(work, parameters),
                     format_count(static_cast<std::uint64_t>(devices), model_.gpu ? "GPU" : "host"), speed.flops,
                     model_.planned_gpu ? "on such cards with 8B in bf16, without the start" : "here");
}

namespace {

// The files of a model that an earlier task makes, and what the plan uses instead.
Notes placeholder_notes(const ModelSection& model, const Checkpoint& checkpoint) {
  Notes notes;
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

namespace {

constexpr std::size_t kShownBytes = 4000;

// Puts "    | " before each line; a longer text is cut between two characters.
std::string block_of_lines(std::string text) {
  const std::size_t whole = text.size();
  if (whole > kShownBytes) {
    std::size_t end = kShownBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text.resize(end);
  }
  const std::size_t shown = text.size();
  std::string out;
  std::istringstream lines(terminal_safe(text));
  for (std::string line; std::getline(lines, line);) out += "    | " + line + "\n";
  return shown == whole ? out : out + fmt::format("    ... and {} bytes more\n", whole - shown);
}

}  // namespace

std::string TaskRunner::first_prompt() {
  const SampleRules rules = job_->rules();
  const IndexRange records = dataset_.records();
  if (rules.shown_as == nullptr || rules.tokenizer == nullptr || records.size() == 0 || data_.is_placeholder) return "";
  std::string out;
  dataset_.for_each({records.begin, records.begin + 1}, [&](Record&& record) {
    std::vector<SampleTokens> samples;
    if (rules.encode) {
      samples = rules.encode(record);
    } else {
      std::vector<TokenId> ids;
      rules.tokenizer->encode(record.text, EncodeOptions{}, ids);
      samples.emplace_back(std::move(ids));
    }
    if (samples.empty()) return;
    const std::vector<TokenId>& ids = samples.front().ids;
    out = fmt::format("  first {} (record {}, {}{}{})\n", rules.shown_as, printable(record.key, 60),
                      format_count(ids.size(), "token"),
                      samples.size() > 1 ? fmt::format("; one of {} of the record", samples.size()) : "",
                      job_->awaited().results ? "; what an earlier task writes is not there yet" : "");
    out += block_of_lines(rules.tokenizer->decode(ids));
  });
  return out;
}

std::string TaskRunner::copies_note() const {
  const bool on_cpus = !model_.gpu && task_.traits().runs_model && !checkpoint_.section().none;
  if (!on_cpus || model_.shards_on_host < 2) return "";
  if (context_.experiment.plan.device_memory > 0)
    return tp_size_ == 1 ? "one for each shard (plan.device_memory is that of a shard alone)" : "";
  const SharedWeights& shared = model_.shared;
  if (shared.bytes == 0) return "";  // each shard has other weights, or some that are never shared
  const bool is_planned = num_ranks_ != context_.world.size();
  const char* const host = is_planned ? "a host like this one" : "a host";
  if (!shared.on())
    return fmt::format(
        "one for each of the {} shards of {} (its ranks are at different NUMA nodes, cannot see each other's memory, "
        "or have a kernel without huge pages for shared memory)",
        shared.shards, host);
  const std::string words = fmt::format(
      "{} for the {} shards of {}", shared.copies == 1 ? "one" : fmt::format("{}", shared.copies), shared.shards, host);
  if (!is_planned) return words;
  return fmt::format("{}, one at each NUMA node; where ranks cannot share memory, each shard needs {} more", words,
                     format_bytes(shared.bytes - shared.part()));
}

PlanReport TaskRunner::plan() {
  PlanReport report;
  report.devices = devices_;
  for (const DeviceRow& row : devices_) {
    report.num_groups = std::max(report.num_groups, row.group_index + 1);
    report.tp_size = std::max(report.tp_size, row.group_size);
  }
  report.model = describe_planned_model({checkpoint_.config(), model_.dtype, model_.quantization, model_.layers()});
  report.free_bytes = free_bytes_for(context_.results_path);
  std::uint64_t longest = task_.pass_shape(model_.pass_limits()).sequence_tokens;
  if (data_.is_placeholder || job_->awaited().results) {
    report.num_samples = dataset_.records().size();
    report.notes = {{"lengths", "unknown until the tasks before this one have run; so are units and bytes"}};
  } else {
    job_->open_results();
    // Without the model it is unknown whose results a file of this name holds.
    if (awaits_earlier() || !plan_from_file(report)) plan_samples(report);
    longest = report.longest_sample;
  }
  report.notes.insert(report.notes.end(), lengths_.begin(), lengths_.end());
  if (model_is_placeholder_) {
    for (auto& note : placeholder_notes(task_.model_section(), checkpoint_)) report.notes.push_back(std::move(note));
  }
  if (const std::string words = checkpoint_.describe_generation(); !words.empty())
    report.notes.emplace_back("generation_config.json", words);
  if (std::string words = describe_rope_length(checkpoint_.config()); !words.empty())
    report.notes.emplace_back("model.rope_length", std::move(words));
  if (std::string words = copies_note(); !words.empty())
    report.notes.emplace_back("copies of weights", std::move(words));
  report.first_prompt = first_prompt();
  const PlanNumbers numbers{.num_samples = report.num_samples,
                            .num_tokens = report.num_tokens,
                            .num_units = report.num_units,
                            .longest_sample = longest};
  plan_sizes(report, numbers);
  const MemoryDemand demand = job_->demand(numbers);
  if (!demand.host.empty())
    report.notes.emplace_back("host memory",
                              fmt::format("{} a rank: {}", format_bytes(sum_of(demand.host)), describe(demand.host)));
  report.notes.insert(report.notes.end(), demand.notes.begin(), demand.notes.end());
  if (context_.world.rank() == 0) {
    if (std::optional<std::string> time = time_note(report)) report.notes.emplace_back("time", *std::move(time));
  }
  refuse_fault(demand);
  check_device_memory(devices_, [&](int group_size) -> const MemoryParts& { return parts_of(report, group_size); });
  check_cpu_memory(report);
  check_host_memory(context_.world, model_, report.device_parts, demand.host, host_bytes(numbers, demand.cache_pages));
  return report;
}

// A shard on CPUs may use all of plan.device_memory.
void TaskRunner::check_cpu_memory(const PlanReport& report) const {
  const std::uint64_t given = context_.experiment.plan.device_memory;
  if (model_.gpu || given == 0 || report.device_bytes <= given) return;
  const auto [needed, there] = format_bytes_apart(report.device_bytes, given);
  fail(ExitCode::kConfig,
       "{}: a {} needs {}: {}, and plan.device_memory gives it {} (the system would kill the job); {}", task_.name(),
       task_.traits().runs_model ? "CPU shard" : "rank on CPUs", needed, describe(report.device_parts), there,
       task_.traits().runs_model ? "plan for more shards, dtype: bf16, a quantization, or smaller passes"
                                 : "lower train.micro_batch or train.max_length, or set train.gradient_checkpointing");
}

void TaskRunner::plan_sizes(PlanReport& report, const PlanNumbers& numbers) const {
  const std::vector<std::uint64_t> units = shares_.units_by_part(report.num_units);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const int size = shares_.parts()[i].size;
    const MemoryDemand demand = jobs_[i]->demand(numbers);
    MemoryParts parts = device_parts(demand, size, demand.cache_pages);
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
  if (rules.check) rules.check(samples);
  TaskResults results = job_->results(numbers);
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
                  {"longest sample", fmt::format("{} tokens", samples.longest_sample)}};
  if (samples.num_records_cut > 0)
    report.notes.emplace_back("longer than max_length", fmt::format("{} records", samples.num_records_cut));
  if (samples.empty_texts) report.notes.emplace_back("empty", *samples.empty_texts);
  if (samples.num_turns_left_out > 0)
    report.notes.emplace_back(
        "turns of the assistant left out",
        fmt::format("{} in {} records", samples.num_turns_left_out, samples.num_records_with_such));
  for (auto& note : results.notes) report.notes.push_back(std::move(note));
}

// Reads what is left to do from an earlier run's file, which is refused here as `run` would refuse it. False: there is
// no such file.
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
  check_attributes_everywhere(world, path, on_any_cpu(expected), task_key());
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
