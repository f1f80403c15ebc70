// Checks a file of verdicts from its bytes alone.
#include <algorithm>
#include <cmath>

#include "tasks/judge/columns.h"

namespace magister {
namespace {

bool check_judge_columns(const ResultsReader& file, FaultList& faults) {
  using Extent = ColumnSpec::Extent;
  struct Required {
    const char* path;
    ColumnType type;
  };
  bool right = true;
  for (const Required& want :
       {Required{"/judge/verdict", ColumnType::kI32}, Required{"/judge/probability", ColumnType::kF32},
        Required{"/judge/log_odds", ColumnType::kF32}, Required{"/judge/mass", ColumnType::kF32},
        Required{"/judge/class_logprob", ColumnType::kF32}, Required{"/judge/parse", ColumnType::kU8}}) {
    const ColumnSpec* column = file.find(want.path);
    if (column != nullptr && column->type == want.type && column->extent == Extent::kSamples) continue;
    faults.add("dataset {} is missing or has another type or shape than verdicts have", want.path);
    right = false;
  }
  return right;
}

// The verdict must be the best class, or -1 if several are equally good; mass must be the classes' total probability.
void check_judge_rows(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  const std::size_t classes = file.find("/judge/class_logprob")->width;
  for (std::uint64_t i = unit.samples.begin; i < unit.samples.end; ++i) {
    std::vector<float> logprobs(classes);
    file.read("/judge/class_logprob", i, std::as_writable_bytes(std::span(logprobs)));
    const std::int32_t verdict = file.rows<std::int32_t>("/judge/verdict", i, 1)[0];
    if (std::isnan(logprobs[0])) {  // read from a written reply
      const bool right = verdict >= -1 && verdict < static_cast<std::int32_t>(classes) &&
                         (verdict >= 0 || file.rows<std::uint8_t>("/judge/parse", i, 1)[0] != 0);
      if (!right) faults.add("prompt {}: verdict {} of a reply is none of {}, or is marked ok", i, verdict, classes);
      continue;
    }
    const float mass = file.rows<float>("/judge/mass", i, 1)[0];
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

}  // namespace

const ResultsSchema kJudgeSchema = {"magister.judge", 1, check_judge_columns, nullptr, check_judge_rows};

}  // namespace magister
