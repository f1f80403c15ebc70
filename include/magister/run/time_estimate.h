// Estimates how much a task's model computes and how long that takes, for `plan` and for the order of tasks that run at
// once, never for results.
#pragma once

#include <optional>
#include <string_view>

#include "magister/device/launch.h"

namespace magister {

// In tokens.
struct ModelWork {
  double read = 0;     // in passes over whole texts
  double written = 0;  // one after the other, in `at_once` texts at a time
  double learnt = 0;   // in forward and backward passes
  double at_once = 1;
};

// Forward products take 2 FLOPs for each token and parameter, and the backward pass takes twice as many.
double flops_of(const ModelWork& work, double parameters);

struct Speed {
  double flops = 0;             // per second, in matrix products
  double bytes_per_second = 0;  // weights read from memory; 0: not measured
};

// Measures the speed of all cores of this host together (f32), or of the GPU (bf16), once per process, in less than a
// second. writes: the work writes tokens, for which weights are read step by step, so reading is measured, too; this
// takes up to 64 MiB per core, which other work avoids. Zeros: there is not enough memory. Local; not thread-safe.
Speed measured_speed(const gpu::Queue& queue, bool writes);

// The speed of a card that is only planned, by its name in gpu_cards.h, as it was measured with an 8B model in bf16
// (tests/bench/reports/h200.md): prompts in passes of 4,096 tokens, and a token of 256 texts at once, whose weights and
// keys are read. nullopt: no such card was measured.
std::optional<Speed> known_speed(std::string_view card);

// Returns the seconds on `devices` devices of that speed. A step of `at_once` written tokens reads all weights once.
double seconds_of(const ModelWork& work, double parameters, double weight_bytes, const Speed& speed, double devices);

}  // namespace magister
