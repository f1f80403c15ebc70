// Runs one task: lock, identity, resume or create the file, compute units, finish; see task_runner.h.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/io/results/identity.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/run_log.h"
#include "magister/run/shard_model.h"
#include "magister/run/task_runner.h"
#include "magister/run/unit_loop.h"
#include "magister/runtime/rope_length.h"
#include "run/task_files.h"

namespace magister {

namespace fs = std::filesystem;

PlanNumbers numbers_of(const SamplePlan& plan) {
  return {.num_samples = plan.num_samples,
          .num_tokens = plan.num_tokens,
          .num_units = plan.num_units,
          .key_bytes = plan.max_key_bytes,
          .longest_sample = plan.longest_sample};
}

std::uint64_t missing_bytes(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return 0;
  const auto size = static_cast<std::uint64_t>(status.st_size),
             there = static_cast<std::uint64_t>(status.st_blocks) * 512;
  return size - std::min(size, there);
}

Attributes on_any_cpu(Attributes expected) {
  std::erase_if(expected, [](const auto& entry) { return entry.first.ends_with("bf16_products"); });
  return expected;
}

namespace {

// The digest of a plan, equal for any number of ranks and any restart.
std::string plan_sha256(const SamplePlan& plan, const SampleRules& rules) {
  return sha256_hex(fmt::format("samples {} tokens {} units {} unit_tokens {} lengths {:016x}", plan.num_samples,
                                plan.num_tokens, plan.num_units, rules.unit_tokens, plan.lengths_digest));
}

Attributes root_attributes(const Task& task, std::uint64_t format_version, const Attributes& identity,
                           const std::string& plan) {
  Attributes root = {{"format", "magister." + task.kind()},
                     {"format_version", format_version},
                     {"software", "magister"},
                     {"software_version", MAGISTER_VERSION}};
  root.insert(root.end(), identity.begin(), identity.end());
  root.emplace_back("plan_sha256", plan);
  return root;
}

// Polls the local stop sign, and at most ten times a second the stop requests of other ranks: so a stop reaches every
// rank between two passes.
StopPoll shared_stop(const StopSign& stop, UnitTickets& tickets) {
  constexpr std::int64_t kPause = 100'000'000;
  struct State {
    std::atomic<std::int64_t> next_look{0};
    std::atomic<bool> stop_seen{false};
  };
  return [&stop, &tickets, state = std::make_shared<State>()] {
    if (stop.raised() || state->stop_seen.load(std::memory_order_relaxed)) return true;
    const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    std::int64_t next = state->next_look.load(std::memory_order_relaxed);
    if (now < next || !state->next_look.compare_exchange_strong(next, now + kPause)) return false;
    if (tickets.stop_requested()) state->stop_seen = true;
    return state->stop_seen.load();
  };
}

}  // namespace

std::string TaskRunner::working_path() const {
  return packs() ? packed_later_path(context_.results_path) : context_.results_path;
}

// The identity of the results: two runs with the same identity belong to one results file. It contains only the part of
// the experiment that counts (identity.h). Collective over the world.
Attributes TaskRunner::identity() {
  const std::string& experiment = context_.identity_yaml;
  Attributes all = {{"experiment", experiment}, {"config_sha256", config_sha256(experiment)}};
  const auto add = [&all](const Attributes& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(checkpoint_.identity(context_.world, context_.stop_poll()));
  leave_if_stopped(context_.world, context_.stop);
  const IndexRange slice = dataset_.records();
  add({{"dataset_sha256", dataset_.sha256()}, {"dataset_format", dataset_.formats()}});
  add(job_->identity());
  add({{"dtype", dtype_name(model_.dtype)}, {"device", model_.device_kind()}});
  if (!shares_.mixed()) add({{"tp_size", static_cast<std::uint64_t>(tp_size_)}});
  // Units are counted from the first one of a file; a merged file counts those of each of its parts.
  if (shares_.mixed()) add({{"tp_sizes", shares_.sizes()}, {"tp_shares", shares_.shares()}, {"tp_first_units", "0"}});
  add({{"source_records", dataset_.num_source_records()}, {"slice_begin", slice.begin}, {"slice_end", slice.end}});
  if (const std::string products = model_.bf16_products(); !products.empty()) add({{"bf16_products", products}});
  return all;
}

// The final file of a job that packs is made again if packing was interrupted, but only if the partial file there
// belongs to this task.
void TaskRunner::refuse_foreign_pack(const Attributes& expected) const {
  if (!packs() || state_everywhere(context_.world, context_.results_path) != ResultsFile::State::kPartial) return;
  Attributes ours = {{"format", "magister." + task_.kind()}};
  ours.insert(ours.end(), expected.begin(), expected.end());
  check_attributes_everywhere(context_.world, context_.results_path + ".partial", ours, task_key());
}

bool TaskRunner::is_complete(const Attributes& expected) {
  if (state_everywhere(context_.world, context_.results_path) != ResultsFile::State::kComplete) return false;
  check_attributes_everywhere(context_.world, context_.results_path, on_any_cpu(expected), task_key());
  const SideFiles side_files = job_->side_files();
  for (const SideFiles::File& file : side_files.needed)
    require_side_file(context_.results_path, file.path, file.holds, file.remedy);
  if (side_files.check) side_files.check();
  return true;
}

ExitCode TaskRunner::run() {
  const Communicator& world = context_.world;
  const std::string working = working_path();
  make_folder(world, fs::path(context_.results_path).parent_path().string());
  const ResultsLock lock(world, context_.results_path, context_.held);
  if (context_.fresh) {
    put_aside(world, job_->side_files().put_aside);
    put_aside(world, {context_.results_path, context_.results_path + ".partial"});
    if (packs()) put_aside(world, {working, working + ".partial"});
  }
  job_->open_results();
  const Attributes expected = identity();
  if (is_complete(expected)) {
    // Left by a run that was killed between the last two steps.
    if (packs() && world.rank() == 0) remove_if_ours(working + ".partial", expected);
    log_info("{}: {} is complete already; nothing to do (--fresh puts it aside and starts over)", task_.name(),
             context_.results_path);
    return ExitCode::kDone;
  }
  if (const std::string words = checkpoint_.describe_generation(); !words.empty())
    log_info("{}: generation_config.json: {}", task_.name(), words);
  if (const std::string words = describe_rope_length(checkpoint_.config()); !words.empty())
    log_info("{}: {}", task_.name(), words);
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
                             context_.stop_poll(), task_key());
}

namespace {

void log_samples(const std::string& task, const SamplePlan& plan, const SampleRules& rules) {
  if (plan.num_records_cut > 0) {
    log_info("{}: {} records are longer than max_length {} and were {}", task, plan.num_records_cut, rules.max_length,
             rules.overflow == Overflow::kWindow ? "cut into windows" : "truncated");
  }
  if (plan.empty_texts)
    log_warning("{}: {} (the model sees no text of theirs); check {}", task, *plan.empty_texts,
                rules.expected_text.key);
  if (plan.num_turns_left_out > 0) {
    log_warning(
        "{}: {} turns of the assistant in {} records take no part, the other turns do (the chat template writes them "
        "differently when others follow, or its prompt for an answer differs from the turn that it writes: the model "
        "would not write them so); a template with generation blocks (model.chat_template) marks the assistant's text",
        task, plan.num_turns_left_out, plan.num_records_with_such);
  }
}

}  // namespace

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
  log_samples(task_.name(), plan, rules);
  // A task that cannot be done must leave no file behind, because the file would be in the way of another experiment.
  if (rules.check) rules.check(plan);
  checked_demand(numbers_of(plan));
  TaskResults results = job_->results(numbers_of(plan));
  ResultsSpec spec;
  spec.columns = std::move(results.columns);
  spec.num_units = plan.num_units;
  spec.checks_inputs = true;
  spec.default_plot_column = results.default_plot_column;
  spec.attributes = root_attributes(task_, results.format_version, expected, plan_sha256(plan, rules));
  const Attributes rules_of_tokenizer = checkpoint_.tokenizer_rules();
  spec.attributes.insert(spec.attributes.end(), rules_of_tokenizer.begin(), rules_of_tokenizer.end());
  spec.attributes.emplace_back("num_samples", plan.num_samples);
  spec.attributes.emplace_back("num_tokens", plan.num_tokens);
  if (task_.traits().keeps_widths) {
    spec.attributes.emplace_back("key_bytes", plan.max_key_bytes);
    spec.attributes.emplace_back("longest_sample", plan.longest_sample);
  }
  job_->check_left_over(spec.attributes);
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
  if (!task_.traits().keeps_widths) return numbers;
  numbers.key_bytes = number("key_bytes");
  numbers.longest_sample = number("longest_sample");
  return numbers;
}

// Frees the weights that earlier tasks left and this one does not use. If the loss of quantisation is measured first,
// the model without quantisation would need memory in addition to the cached weights of the task's own model, so these
// are freed, too.
void TaskRunner::keep_weights(WeightStore& store, const Attributes& expected, nlohmann::ordered_json& log_fields) {
  std::vector<std::string> names = job_->keep_weights(store, expected);
  if (checkpoint_.section().none && names.empty()) return;
  const auto kept = [&](const std::string& name) { return store.has(name); };
  if (!names.empty()) {
    auto& others = log_fields["other_weights_kept"] = nlohmann::ordered_json::array();
    for (const std::string& name : names) others.push_back(kept(name));
  }
  if (task_.model_section().quantization_loss > 0) store.keep_only(names);
  if (task_.traits().runs_model && !checkpoint_.section().none)
    names.push_back(model_.keep_weights(store, expected, ""));
  log_fields["weights_kept"] = model_.kept.is_cached();
  store.keep_only(std::move(names));
  if (task_.traits().runs_model && !checkpoint_.section().none) model_.share_weights(context_.world, group_->tp_size());
}

ExitCode TaskRunner::compute(ResultsFile& file, const PlanNumbers& numbers, const Attributes& expected) {
  MAGISTER_CHECK(file.any_thread() || context_.world.max(static_cast<std::uint64_t>(group_->groups_here())) == 1,
                 ExitCode::kConfig,
                 "output.driver: mpio with ranks that hold several groups (each group writes by itself, and one thread "
                 "of a rank may use MPI-IO); use another driver, or start a rank for every group");
  MemoryDemand demand = checked_demand(numbers);
  nlohmann::ordered_json log_fields = model_.log_fields();
  const int expected_copies = model_.shared.copies;
  if (context_.weights != nullptr) keep_weights(*context_.weights, expected, log_fields);
  // For example because an earlier task left a copy on each rank. Nothing is loaded yet.
  if (model_.shared.copies > expected_copies) demand = checked_demand(numbers);
  const std::optional<LossPlan> loss =
      plan_quantization_loss(context_, *group_,
                             {task_.name(), task_.model_section().quantization_loss, model_, file, expected,
                              job_->decision(), task_.pass_shape(model_.pass_limits()).sequence_tokens > 0});
  return run_unit_loop(
      {context_, *group_, file, task_.name(), times_, std::move(log_fields), task_.traits().divides_records},
      [&](const UnitWork& work) {
        const std::function<bool()> stop_wanted = shared_stop(context_.stop, work.tickets);
        const ModelRun run{.plan = numbers,
                           .group = *group_,
                           .file = file,
                           .work = work,
                           .model = model_,
                           .stop_wanted = stop_wanted,
                           .loss = loss,
                           .times = times_,
                           .pass = task_.pass_shape(model_.pass_limits()),
                           .memory = demand.device,
                           .cache_pages = static_cast<std::int64_t>(demand.cache_pages)};
        job_->work(run);
      });
}

// False: the job was asked to stop; the next run does all of it again.
bool TaskRunner::finish_on_rank_zero(const ResultsFile& file, const PlanNumbers& numbers, const Attributes& expected) {
  if (!job_->report(file, numbers)) return false;
  const Packing pack = job_->packing();
  if (!pack) return true;
  const std::string running = working_path() + ".partial";
  fail_point("task.pack.begin");
  Attributes root = root_attributes(task_, job_->results(numbers).format_version, expected,
                                    ResultsFile::read_text(running, "plan_sha256"));
  for (auto& [name, value] : root) {  // the paths at the time of the plan, as in a file that is not packed
    if (name == "experiment") value = ResultsFile::read_text(running, "experiment");
  }
  for (auto& attribute : checkpoint_.tokenizer_rules()) root.push_back(std::move(attribute));
  if (!pack(file, numbers, context_.results_path, root)) return false;
  fail_point("task.pack.done");
  ::unlink(running.c_str());
  return true;
}

ExitCode TaskRunner::finish(ResultsFile& file, const PlanNumbers& numbers, const Attributes& expected) {
  const Communicator& world = context_.world;
  std::uint64_t finished = 0;
  if (world.rank() == 0) finished = finish_on_rank_zero(file, numbers, expected) ? 1 : 0;
  world.wait_for_all();  // sleeps, because packing may take long
  world.broadcast(&finished, sizeof finished, 0);
  if (finished == 0) {
    log_info("{}: stopped cleanly, all units are there; run the same command again for the last step", task_.name());
    return ExitCode::kStopped;
  }
  if (!packs()) file.complete(world);
  log_info("{}: {} is complete", task_.name(), context_.results_path);
  return ExitCode::kDone;
}

}  // namespace magister
