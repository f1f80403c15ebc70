// How much a task's model computes and what that takes: estimates for `plan` and for the order of tasks that run at once, never for results.
#pragma once

#include "magister/device/launch.h"

namespace magister {

// In tokens.
struct ModelWork {
  double read = 0;     // by passes over whole texts
  double written = 0;  // one after the other, of `at_once` texts beside each other
  double learnt = 0;   // forward and backward
  double at_once = 1;
};

// Products of a token are 2 FLOPs a parameter, and its backward pass has twice as many.
double flops_of(const ModelWork& work, double parameters);

struct Speed {
  double flops = 0;             // products, a second
  double bytes_per_second = 0;  // weights read from memory, where it was asked for
};

// Of all cores of this host together (f32), or of the GPU (bf16): measured once a process, in less than a second. writes: of work that writes tokens, for
// which weights are read step by step; the figure takes 64 MiB a core, so no other work pays for it. Zeros: no memory for it. Local, one thread.
Speed measured_speed(const gpu::Queue& queue, bool writes);

// On `devices` of that speed. A step of `at_once` written tokens reads all weights once.
double seconds_of(const ModelWork& work, double parameters, double weight_bytes, const Speed& speed, double devices);

}  // namespace magister
