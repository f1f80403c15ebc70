// Checks a file of verdicts from its bytes alone.
#include <algorithm>
#include <cmath>

#include "tasks/judge/columns.h"

namespace magister {
namespace {

bool check_judge_columns(const ResultsReader& file, FaultList& faults) {
  using namespace judge_column;
  bool right = true;
  const auto require = [&](const auto& column) {
    if (column.fits(file.find(column))) return;
    faults.add("dataset {} is missing or has another type or shape than verdicts have", column.path);
    right = false;
  };
  require(kVerdict);
  require(kProbability);
  require(kLogOdds);
  require(kMass);
  require(kClassLogprob);
  require(kParse);
  return right;
}

// The verdict must be the best class, or -1 if several are equally good; mass must be the classes' total probability.
void check_judge_rows(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  const std::size_t classes = file.find(judge_column::kClassLogprob)->width;
  for (std::uint64_t i = unit.samples.begin; i < unit.samples.end; ++i) {
    const auto logprobs = file.rows(judge_column::kClassLogprob, i, 1, classes);
    const std::int32_t verdict = file.rows(judge_column::kVerdict, i, 1)[0];
    if (std::isnan(logprobs[0])) {  // read from a written reply
      const bool right = verdict >= -1 && verdict < static_cast<std::int32_t>(classes) &&
                         (verdict >= 0 || file.rows(judge_column::kParse, i, 1)[0] != 0);
      if (!right) faults.add("prompt {}: verdict {} of a reply is none of {}, or is marked ok", i, verdict, classes);
      continue;
    }
    const float mass = file.rows(judge_column::kMass, i, 1)[0];
    double together = 0;
    for (const float value : logprobs) together += std::exp(static_cast<double>(value));
    // The stored values are f32: values that differ in double may be equal here, and values of a tie may differ in the
    // last bit.
    std::vector<float> ordered = logprobs;
    std::sort(ordered.rbegin(), ordered.rend());
    const bool tie = ordered[1] >= ordered[0] - 1e-6f * std::max(1.0f, std::abs(ordered[0]));
    const bool best = verdict >= 0 && verdict < static_cast<std::int32_t>(classes) &&
                      logprobs[static_cast<std::size_t>(verdict)] >= ordered[0];
    if (!best && !(verdict == -1 && tie)) faults.add("prompt {}: verdict {} is not the most probable one", i, verdict);
    if (!(std::abs(together - mass) <= 1e-4))
      faults.add("prompt {}: mass is {}, the verdicts' probabilities are {} together", i, mass, together);
  }
}

constexpr ColumnNames kNamesOfVerdicts[] = {
    {.path = judge_column::kVerdict.path, .attribute = "verdicts", .sound_where_zero = judge_column::kParse.path},
    {.path = judge_column::kCombined.path, .attribute = "verdicts"},
    {.path = judge_column::kParse.path, .names = "ok,low_mass,unparsed,truncated,tie"},
    {.path = judge_column::kOrder.path, .names = "as_given,exchanged"}};

}  // namespace

constinit const ResultsSchema kJudgeSchema = {.format = "magister.judge",
                                              .columns = check_judge_columns,
                                              .rows = check_judge_rows,
                                              .exported = {.names = kNamesOfVerdicts}};

}  // namespace magister
