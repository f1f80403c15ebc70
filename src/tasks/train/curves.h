// Curves of a training that only some objectives have: the numbers that are kept for a step or an evaluation, and the
// columns of the results that are made from them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "magister/io/results/reader.h"
#include "magister/io/results/schema.h"
#include "magister/train/trainer.h"

namespace magister {

struct Evaluation;  // held_out.h

// A column, computed from the numbers of a step or of an evaluation.
struct CurveColumn {
  Column<float> column;
  float (*value)(const float* numbers);
};

struct CurveSet {
  std::int64_t width = 0;  // number of f32 values that are kept
  std::span<const CurveColumn> columns{};
  // Checks rows first, first + 1, ... of a complete file and adds faults; null: there is nothing to check.
  void (*check)(const ResultsReader& file, std::uint64_t first, std::uint64_t count, FaultList& faults) = nullptr;
  // Number of tokens that a step learnt from; null: the plan of the batches gives it.
  std::uint64_t (*tokens)(const float* numbers) = nullptr;
  // The numbers of a step; null: OpenObjective::curve() gives them, or there are none.
  std::vector<float> (*numbers)(const StepResult& result) = nullptr;
  // Text about a step for the log; null: none.
  std::string (*describe)(const StepResult& result) = nullptr;
  // Text that follows the held-out loss in the log; adds the same numbers to event.
  std::string (*describe_held_out)(const Evaluation& found, std::uint64_t num_labels,
                                   nlohmann::ordered_json& event) = nullptr;
};

// Columns of /train, one row per step.
inline constexpr CurveSet kNoCurves;
extern const CurveSet kPairCurves;    // objectives/pairs.cpp
extern const CurveSet kPolicyCurves;  // grpo_steps.cpp
extern const CurveSet kValueCurves;   // objectives/value.cpp

// Columns of /evaluate, one row per evaluation. The first number and the first column are the loss
// (kHeldOutLossCurve in columns.h).
extern const CurveSet kHeldOutTokenCurves;  // objectives/lm.cpp
extern const CurveSet kHeldOutRowCurves;    // objectives/distill.cpp
extern const CurveSet kHeldOutPairCurves;   // objectives/pairs.cpp

}  // namespace magister
