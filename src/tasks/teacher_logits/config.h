// The keys of `task: teacher_logits`. configs/keys/teacher_logits.md lists each with default and range; keep the two in
// step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "magister/core/config.h"
#include "magister/engine/unit_plan.h"
#include "magister/experiment/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/task_kinds.h"
#include "magister/runtime/length_key.h"
#include "tasks/teacher_logits/encoding.h"

namespace magister {

class Task;

struct TeacherLogitsConfig {
  std::string name = "teacher";
  ModelSection model;                                   // of the task or of the experiment
  DatasetConfig dataset;                                // with its slice
  LengthKey max_length;                                 // tokens per sample
  std::string length_place, top_k_place, stride_place;  // file:line:column and key, for checks against the model
  Overflow overflow = Overflow::kTruncate;
  std::uint64_t stride = 0;  // `overflow: window`: distance of two windows, 1 .. max_length; 0: max_length
  std::uint64_t top_k = 64;  // checked against the vocabulary once the model is known
  bool logprob_f16 = false;  // logprob_dtype: f16
  TeacherEncoding::Kind encoding = TeacherEncoding::Kind::kPlain;
  std::uint64_t tail_draws = 0;  // sampled rows: number of draws
  std::uint64_t seed = 0;        // seed of the draws
  std::uint64_t unit_tokens = 2048;
  bool assistant_only = false;  // `score: assistant`: only rows before a token of the assistant are filled
};

TeacherLogitsConfig read_teacher_logits_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/teacher_logits/task.cpp).
TaskKind teacher_logits_task();

}  // namespace magister
