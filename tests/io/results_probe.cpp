// A small program for the Python tests: it fills a results file as a task does, under mpirun, and reads it as the
// commands do. Rows come from a made-up softmax over 50 tokens that depends on (sample, position) only.
//  results_probe run FILE.h5 [samples=N] [k=N] [half=1] [slice=i/n] [unit_tokens=N] [preallocate=1] [asked=N]
//    [pause_ms=N] [yaml_bytes=N]: the minimum length of the experiment's text
//   results_probe lock FILE.h5 SECONDS | info FILE | json FILE | check FILE | export FILE OUT | merge OUT PART...
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <thread>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/results/results_file.h"
#include "magister/io/results/tools.h"
#include "magister/tasks/registry.h"

using namespace magister;

namespace {

constexpr int kVocabulary = 50;
using Options = std::map<std::string, std::string>;

std::uint64_t number(const Options& options, const char* name, std::uint64_t fallback) {
  const auto found = options.find(name);
  return found == options.end() ? fallback : std::stoull(found->second);
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::uint64_t length_of(std::uint64_t sample) { return sample % 7 == 3 ? 0 : mix(sample) % 20; }
std::int32_t token_of(std::uint64_t sample, std::uint64_t position) {
  return static_cast<std::int32_t>(mix(sample * 1000 + position) % kVocabulary);
}
std::string key_of(std::uint64_t sample) {
  return sample % 5 == 2 ? "café-数" + std::to_string(sample) : "s" + std::to_string(sample);
}

struct Plan {
  IndexRange records;
  std::vector<std::uint64_t> offset{0}, unit_begin;
  std::uint64_t key_bytes = 1;
  std::uint64_t num_samples() const { return offset.size() - 1; }
};

Plan make_plan(const Options& options) {
  const std::uint64_t all = number(options, "samples", 60), unit_tokens = number(options, "unit_tokens", 40);
  std::uint64_t index = 0, count = 1;
  if (options.count("slice")) std::sscanf(options.at("slice").c_str(), "%lu/%lu", &index, &count);
  Plan plan;
  plan.records = {all * index / count, all * (index + 1) / count};
  std::uint64_t in_unit = 0;
  for (std::uint64_t s = plan.records.begin; s < plan.records.end; ++s) {
    if (plan.unit_begin.empty() || in_unit + length_of(s) > unit_tokens) {
      plan.unit_begin.push_back(s - plan.records.begin);
      in_unit = 0;
    }
    in_unit += length_of(s);
    plan.offset.push_back(plan.offset.back() + length_of(s));
    plan.key_bytes = std::max<std::uint64_t>(plan.key_bytes, key_of(s).size());
  }
  plan.unit_begin.push_back(plan.num_samples());
  return plan;
}

Attributes identity(const Options& options, const Plan& plan) {
  return {{"config_sha256", std::string(64, 'c')},
          {"model_sha256", std::string(64, 'm')},
          {"tokenizer_sha256", std::string(64, 't')},
          {"dataset_sha256", std::string(64, 'd')},
          {"source_records", number(options, "samples", 60)},
          {"slice_begin", plan.records.begin},
          {"slice_end", plan.records.end}};
}

ResultsSpec spec_of(const Options& options, const Plan& plan) {
  using Extent = ColumnSpec::Extent;
  const std::uint64_t n = plan.num_samples(), T = plan.offset.back(), k = number(options, "k", 4);
  const ColumnType logprob = number(options, "half", 0) ? ColumnType::kF16 : ColumnType::kF32;
  ResultsSpec spec;
  spec.columns = {
      {"/samples/key", ColumnType::kUtf8, n, plan.key_bytes, "the record's key", "", Extent::kSamples},
      {"/samples/source_index", ColumnType::kU64, n, 0, "position of the record", "", Extent::kSamples},
      {"/samples/offset", ColumnType::kU64, n + 1, 0, "rows of sample i", "", Extent::kFixed},
      {"/tokens/id", ColumnType::kI32, T, 0, "the tokens", "", Extent::kRows},
      {"/teacher/top_id", ColumnType::kI32, T, k, "the most probable next tokens", "", Extent::kRows},
      {"/teacher/top_logprob", logprob, T, k, "their log-probabilities", "nat", Extent::kRows},
      {"/teacher/logsumexp", ColumnType::kF32, T, 0, "log-sum-exp", "nat", Extent::kRows},
      {"/teacher/target_logprob", ColumnType::kF32, T, 0, "of the token that follows", "nat", Extent::kRows},
      {"/teacher/entropy", ColumnType::kF32, T, 0, "entropy", "nat", Extent::kRows},
      {"/teacher/tail_mass", ColumnType::kF32, T, 0, "1 - kept mass", "", Extent::kRows}};
  spec.num_units = plan.unit_begin.size() - 1;
  spec.checks_inputs = true;
  spec.default_plot_column = "/teacher/entropy";
  spec.preallocate = number(options, "preallocate", 0) != 0;
  // Keys of another meaning that are named as a task's.
  const bool words = options.count("words") != 0;
  std::string yaml = "name: x\n";
  if (words) yaml += "model:\n  chat_template_kwargs:\n    slice: of cake\n";
  yaml += "tasks:\n  - task: teacher_logits\n    top_k: " + std::to_string(number(options, "asked", 4)) + "\n";
  if (options.count("slice")) yaml += "    slice: " + options.at("slice") + "\n";
  if (words) yaml += "    words:\n      slice: of a text\n";
  if (options.count("yaml_bytes")) yaml += "    prompt: " + std::string(number(options, "yaml_bytes", 0), 'p') + "\n";
  spec.attributes = {{"format", "magister.teacher_logits"},
                     {"format_version", std::uint64_t{1}},
                     {"software", "magister"},
                     {"software_version", "0.1.0"},
                     {"experiment", yaml}};
  for (const auto& entry : identity(options, plan)) spec.attributes.push_back(entry);
  spec.attributes.emplace_back("plan_sha256", fmt::format("{:016x}", mix(T * 1000 + n)));
  spec.attributes.emplace_back("num_samples", n);
  spec.attributes.emplace_back("num_tokens", T);
  return spec;
}

template <typename T>
void put(ResultsFile& file, const char* column, std::uint64_t row, const std::vector<T>& values) {
  file.write(column, row, std::as_bytes(std::span(values)));
}

// The part of the fixed columns and of the unit columns that planning knows: by rank 0, as it is small.
void write_plan(ResultsFile& file, const Plan& plan) {
  const std::uint64_t n = plan.num_samples();
  std::string keys(n * plan.key_bytes, '\0');
  std::vector<std::uint64_t> source;
  std::vector<std::int32_t> ids;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t sample = plan.records.begin + i;
    key_of(sample).copy(keys.data() + i * plan.key_bytes, plan.key_bytes);
    source.push_back(sample);
    for (std::uint64_t p = 0; p < length_of(sample); ++p) ids.push_back(token_of(sample, p));
  }
  file.write("/samples/key", 0, std::as_bytes(std::span(keys)));
  put(file, "/samples/source_index", 0, source);
  put(file, "/samples/offset", 0, plan.offset);
  put(file, "/tokens/id", 0, ids);
  put(file, "/commit/unit_begin", 0, plan.unit_begin);
}

struct Rows {
  std::vector<std::int32_t> top_id;
  std::vector<float> top, lse, target, entropy, tail;
};

void add_row(Rows& rows, std::uint64_t sample, std::uint64_t position, std::uint64_t length, std::size_t k) {
  double logit[kVocabulary], sum = 0, entropy = 0, kept = 0;
  for (int v = 0; v < kVocabulary; ++v) {
    logit[v] = static_cast<double>(mix(mix(sample * 1000 + position) + static_cast<std::uint64_t>(v)) % 1000) * 0.008;
    sum += std::exp(logit[v]);
  }
  const double lse = std::log(sum);
  for (double value : logit) entropy -= std::exp(value - lse) * (value - lse);
  std::vector<int> order(kVocabulary);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return static_cast<float>(logit[a] - lse) > static_cast<float>(logit[b] - lse);
  });
  for (std::size_t i = 0; i < k; ++i) {
    rows.top_id.push_back(order[i]);
    rows.top.push_back(static_cast<float>(logit[order[i]] - lse));
    kept += std::exp(logit[order[i]] - lse);
  }
  const bool last = position + 1 == length;
  rows.lse.push_back(static_cast<float>(lse));
  rows.target.push_back(last ? NAN : static_cast<float>(logit[token_of(sample, position + 1)] - lse));
  rows.entropy.push_back(static_cast<float>(entropy));
  rows.tail.push_back(static_cast<float>(1 - kept));
}

void compute(ResultsFile& file, const Unit& unit, const Plan& plan, const Options& options) {
  Rows rows;
  for (std::uint64_t i = unit.samples.begin; i < unit.samples.end; ++i) {
    const std::uint64_t sample = plan.records.begin + i;
    for (std::uint64_t p = 0; p < length_of(sample); ++p)
      add_row(rows, sample, p, length_of(sample), number(options, "k", 4));
  }
  if (number(options, "half", 0)) {
    std::vector<std::uint16_t> half;
    for (const float value : rows.top)
      half.push_back(static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)));
    put(file, "/teacher/top_logprob", unit.rows.begin, half);
  } else {
    put(file, "/teacher/top_logprob", unit.rows.begin, rows.top);
  }
  put(file, "/teacher/top_id", unit.rows.begin, rows.top_id);
  put(file, "/teacher/logsumexp", unit.rows.begin, rows.lse);
  put(file, "/teacher/target_logprob", unit.rows.begin, rows.target);
  put(file, "/teacher/entropy", unit.rows.begin, rows.entropy);
  put(file, "/teacher/tail_mass", unit.rows.begin, rows.tail);
  file.commit(unit);
}

void run(const Communicator& world, const std::string& path, const Options& options) {
  const Plan plan = make_plan(options);
  const ResultsLock lock(world, path);
  auto state = ResultsFile::State::kAbsent;
  if (world.rank() == 0) state = ResultsFile::state_on_disk(path);
  world.broadcast(&state, sizeof state, 0);
  if (state == ResultsFile::State::kComplete) return;
  auto open = [&] {
    if (state == ResultsFile::State::kPartial) return ResultsFile::resume(world, path, identity(options, plan));
    ResultsFile made = ResultsFile::create(world, path, spec_of(options, plan));
    if (world.rank() == 0) write_plan(made, plan);
    made.freeze();
    return made;
  };
  ResultsFile file = open();
  if (world.rank() == 0) std::printf("%lu of %lu units to do\n", file.pending_units().size(), file.num_units());
  std::uint64_t turn = 0;
  for (const std::uint64_t index : file.pending_units()) {
    if (turn++ % static_cast<std::uint64_t>(world.size()) != static_cast<std::uint64_t>(world.rank())) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(number(options, "pause_ms", 0)));
    compute(file, file.unit(index), plan, options);
  }
  file.complete(world);
}

void command(const Communicator& world, const std::vector<std::string>& arguments) {
  const std::string& what = arguments.at(0);
  if (what == "run") {
    Options options;
    for (std::size_t i = 2; i < arguments.size(); ++i) {
      const std::size_t equals = arguments[i].find('=');
      options[arguments[i].substr(0, equals)] = arguments[i].substr(equals + 1);
    }
    run(world, arguments.at(1), options);
  } else if (what == "lock") {
    const ResultsLock lock(world, arguments.at(1));
    std::printf("locked\n");
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::duration<double>(std::stod(arguments.at(2))));
  } else if (what == "info" || what == "json") {
    std::printf("%s", describe_results(arguments.at(1), what == "json").c_str());
  } else if (what == "check") {
    const ResultsCheck check = check_results(arguments.at(1), schemas_of(built_in_tasks()));
    for (const std::string& fault : check.faults) std::printf("%s\n", fault.c_str());
    if (!check.whole()) {
      fail(ExitCode::kData, "{} faults (see above), {} of {} units; compute again", check.faults.size(),
           check.units_done, check.units);
    }
  } else if (what == "export") {
    export_jsonl(open_complete_results(arguments.at(1)), {}, arguments.at(2));
  } else if (what == "merge") {
    merge_results(arguments.at(1), {arguments.begin() + 2, arguments.end()});
  } else {
    fail(ExitCode::kUsage, "unknown command {} (a test's mistake); see the head of results_probe.cpp", what);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const MpiSession session(&argc, &argv);
  const Communicator world = Communicator::world();
  set_log_identity(world.rank(), world.size());
  try {
    command(world, {argv + 1, argv + argc});
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "magister: %s\n", error.what());
    std::fflush(nullptr);
    abort_job(static_cast<int>(error.code()));
  }
}
