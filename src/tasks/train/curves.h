// Curves of a training that only some objectives have: what each keeps of a step or of an evaluation, and the columns
// that the results make of it.
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

// A column of f32, made of the numbers of a step or of an evaluation.
struct CurveColumn {
  const char* path;
  const char* comment;
  float (*value)(const float* numbers);
  const char* units = "";
};

struct CurveSet {
  std::int64_t width = 0;  // numbers of f32
  std::span<const CurveColumn> columns{};
  // What holds for rows first, first + 1, ... of a sound file; null: nothing is known of them.
  void (*check)(const ResultsReader& file, std::uint64_t first, std::uint64_t count, FaultList& faults) = nullptr;
  // Tokens that a step learnt from, where the plan of its batches does not tell; null: it does.
  std::uint64_t (*tokens)(const float* numbers) = nullptr;
  // The numbers of a step; null: the open objective has them, or there are none.
  std::vector<float> (*numbers)(const StepResult& result) = nullptr;
  // What a line says of a step; null: nothing.
  std::string (*describe)(const StepResult& result) = nullptr;
  // What a line says behind a held-out loss, whose event in the log gets the same.
  std::string (*describe_held_out)(const Evaluation& found, std::uint64_t num_labels,
                                   nlohmann::ordered_json& event) = nullptr;
};

// Of /train, by step.
inline constexpr CurveSet kNoCurves;
extern const CurveSet kPairCurves;    // objectives/pairs.cpp
extern const CurveSet kPolicyCurves;  // grpo_steps.cpp
extern const CurveSet kValueCurves;   // objectives/value.cpp

// Of /evaluate. The first number is the loss, and the first column, too.
extern const CurveSet kHeldOutTokenCurves;  // objectives/lm.cpp
extern const CurveSet kHeldOutRowCurves;    // objectives/distill.cpp
extern const CurveSet kHeldOutPairCurves;   // objectives/pairs.cpp
inline constexpr CurveColumn kHeldOutLoss = {"/evaluate/loss",
                                             "mean over the tokens of the held-out records, or over their pairs",
                                             [](const float* numbers) { return numbers[0]; }, "nat"};

}  // namespace magister
