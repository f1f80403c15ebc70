// See columns.h. The tokens of a sample are the tokens that its step learnt from. `check` reads this file alone.
#include "tasks/train/columns.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::uint64_t kKeyBytes = 12;
constexpr std::uint64_t kUnitSteps = 4096;

void add_columns(std::vector<ColumnSpec>& columns, std::uint64_t rows, const CurveSet& curves) {
  for (const CurveColumn& curve : curves.columns) columns.push_back(curve.column.spec(rows));
}

void add_held_out_columns(std::vector<ColumnSpec>& columns, std::uint64_t count, const CurveSet& curves) {
  columns.push_back(train_column::kHeldOutStep.spec(count));
  add_columns(columns, count, curves);
}

std::vector<ColumnSpec> train_columns(std::uint64_t steps) {
  using namespace train_column;
  using Extent = ColumnSpec::Extent;
  return {{"/samples/key", ColumnType::kUtf8, steps, kKeyBytes, "the step's number", "", Extent::kSamples},
          {"/samples/source_index", ColumnType::kU64, steps, 0, "the step's number, from 0", "", Extent::kSamples},
          {"/samples/offset", ColumnType::kU64, steps + 1, 0,
           "step i learnt from the tokens offset[i] .. offset[i+1] of all that were learnt from", "", Extent::kFixed},
          kStep.spec(steps),
          kLoss.spec(steps),
          kLr.spec(steps),
          kGradNorm.spec(steps),
          kTokens.spec(steps)};
}

template <typename T, typename Get>
void write_column(ResultsFile& file, const Column<T>& column, std::uint64_t count, const Get& get) {
  std::vector<T> values;
  values.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(get(i)));
  file.write(column.path, 0, std::as_bytes(std::span(values)));
}

}  // namespace

std::uint64_t train_results_bytes(std::uint64_t num_steps, std::uint64_t num_evaluations) {
  return 28 * num_evaluations + num_steps * (kKeyBytes + 8 + 8 + 8 + 4 + 4 + 4 + 8 + 24) + 8 +
         (num_steps / kUnitSteps + 1) * 13 + 8;
}

void write_train_results(const std::string& path, const Attributes& attributes, const std::vector<StepRow>& steps,
                         const CurveSet& of_steps, const std::vector<EvaluationRow>& evaluations,
                         const CurveSet& of_held_out) {
  const std::uint64_t n = steps.size(), units = (n + kUnitSteps - 1) / kUnitSteps, count = evaluations.size();
  std::vector<std::uint64_t> offset = {0};
  for (const StepRow& step : steps) offset.push_back(offset.back() + step.tokens);
  ResultsSpec spec;
  spec.columns = train_columns(n);
  add_columns(spec.columns, n, of_steps);
  if (count > 0) add_held_out_columns(spec.columns, count, of_held_out);
  spec.attributes = attributes;
  spec.attributes.emplace_back("num_samples", n);
  spec.attributes.emplace_back("num_tokens", offset.back());
  spec.num_units = units;
  spec.default_plot_column = train_column::kLoss.path;
  ::unlink((path + ".partial").c_str());  // left by an attempt that was killed; everything in it is made again
  const Communicator alone;
  ResultsFile file = ResultsFile::create(alone, path, spec);
  std::string keys;
  for (std::uint64_t i = 0; i < n; ++i) {
    std::string key = std::to_string(i + 1);
    key.resize(kKeyBytes, '\0');
    keys += key;
  }
  file.write("/samples/key", 0, std::as_bytes(std::span(keys)));
  file.write("/samples/offset", 0, std::as_bytes(std::span(offset)));
  write_column(file, Column<std::uint64_t>{"/samples/source_index"}, n, [](std::uint64_t i) { return i; });
  write_column(file, train_column::kStep, n, [](std::uint64_t i) { return i + 1; });
  write_column(file, train_column::kLoss, n, [&](std::uint64_t i) { return steps[i].loss; });
  write_column(file, train_column::kLr, n, [&](std::uint64_t i) { return steps[i].lr; });
  write_column(file, train_column::kGradNorm, n, [&](std::uint64_t i) { return steps[i].grad_norm; });
  write_column(file, train_column::kTokens, n, [&](std::uint64_t i) { return steps[i].tokens; });
  for (const CurveColumn& curve : of_steps.columns)
    write_column(file, curve.column, n, [&](std::uint64_t i) { return curve.value(steps[i].numbers); });
  if (count > 0) {
    write_column(file, train_column::kHeldOutStep, count, [&](std::uint64_t i) { return evaluations[i].step; });
    for (const CurveColumn& curve : of_held_out.columns)
      write_column(file, curve.column, count, [&](std::uint64_t i) { return curve.value(evaluations[i].numbers); });
  }
  write_column(file, Column<std::uint64_t>{"/commit/unit_begin"}, units + 1,
               [&](std::uint64_t i) { return std::min(n, i * kUnitSteps); });
  file.freeze();
  std::vector<Unit> all;
  for (const std::uint64_t index : file.pending_units()) all.push_back(file.unit(index));
  file.commit(all);
  file.complete(alone);
}

namespace {

bool has(const ResultsReader& file, const CurveSet& curves) {
  return file.find(curves.columns.front().column) != nullptr;
}

// The curves of the objective that made the file; empty: it has none.
std::vector<const CurveSet*> curves_of(const ResultsReader& file) {
  std::vector<const CurveSet*> found;
  for (const CurveSet* one : {&kPairCurves, &kPolicyCurves, &kValueCurves}) {
    if (has(file, *one)) found.push_back(one);
  }
  return found;
}

// Number of evaluations in the file; 0: the training had no held-out records.
std::uint64_t evaluations_of(const ResultsReader& file) {
  const auto* const column = file.find(train_column::kHeldOutStep);
  return column == nullptr ? 0 : column->num_rows;
}

const CurveSet& held_out_curves_of(const ResultsReader& file) {
  if (has(file, kPairCurves)) return kHeldOutPairCurves;
  const bool of_rows = file.find(train_column::kHeldOutPerplexity) == nullptr && file.attribute("objective") != nullptr;
  return of_rows ? kHeldOutRowCurves : kHeldOutTokenCurves;
}

bool has_curves(const ResultsReader& file, FaultList& faults) {
  if (!file.complete() && file.find("/tokens/id") != nullptr)
    return false;  // a working file: it has samples to learn from, and no steps to check
  bool all = true;
  std::vector<ColumnSpec> columns = train_columns(file.num_samples());
  for (const CurveSet* curves : curves_of(file)) add_columns(columns, file.num_samples(), *curves);
  if (const std::uint64_t count = evaluations_of(file); count > 0)
    add_held_out_columns(columns, count, held_out_curves_of(file));
  for (const ColumnSpec& wanted : columns) {
    const ColumnSpec* const column = file.find(wanted.path);
    if (column != nullptr && column->type == wanted.type && column->extent == wanted.extent) continue;
    faults.add("dataset {} is missing or of another type", wanted.path);
    all = false;
  }
  return all;
}

void check_evaluations(const ResultsReader& file, FaultList& faults) {
  const std::uint64_t count = evaluations_of(file);
  if (count == 0) return;
  const CurveSet& curves = held_out_curves_of(file);
  for (const CurveColumn& wanted : curves.columns) {
    const std::uint64_t rows = file.find(wanted.column)->num_rows;
    if (rows == count) continue;
    faults.add("{} has {} rows, and there are {} evaluations", wanted.column.path, rows, count);
    return;
  }
  if (curves.check != nullptr) curves.check(file, 0, count, faults);
  const auto step = file.rows(train_column::kHeldOutStep, 0, count);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (step[i] > file.num_samples() || (i == 0 ? step[i] != 0 : step[i] <= step[i - 1]))
      faults.add("evaluation {} is of step {} of {}", i, step[i], file.num_samples());
  }
  if (step.back() != file.num_samples())
    faults.add("the last evaluation is of step {} of {}", step.back(), file.num_samples());
}

void check_steps(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  const std::uint64_t first = unit.samples.begin, count = unit.samples.size();
  const auto step = file.rows(train_column::kStep, first, count);
  const auto tokens = file.rows(train_column::kTokens, first, count);
  const auto lr = file.rows(train_column::kLr, first, count);
  const auto offset = file.rows<std::uint64_t>("/samples/offset", first, count + 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (step[i] != first + i + 1) faults.add("step {} says that it is step {}", first + i + 1, step[i]);
    if (tokens[i] == 0 || tokens[i] != offset[i + 1] - offset[i])
      faults.add("step {} learnt from {} tokens, and its offsets say {}", first + i + 1, tokens[i],
                 offset[i + 1] - offset[i]);
    if (!(lr[i] >= 0) || !std::isfinite(lr[i])) faults.add("the learning rate of step {} is {}", first + i + 1, lr[i]);
  }
  for (const CurveSet* curves : curves_of(file)) {
    if (curves->check != nullptr) curves->check(file, first, count, faults);
  }
}

}  // namespace

constinit const ResultsSchema kTrainSchema = {
    .format = "magister.train", .columns = has_curves, .samples = check_evaluations, .rows = check_steps};

}  // namespace magister
