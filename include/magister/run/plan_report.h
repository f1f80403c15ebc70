// PlanReport: what `plan` prints of a task. Bytes are exact where they follow from the data, else an upper bound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/core/memory_parts.h"
#include "magister/parallel/layout.h"
#include "magister/runtime/notes.h"

namespace magister {

struct PlanReport {
  std::vector<DeviceRow> devices;
  int num_groups = 0;
  int tp_size = 0;  // the largest
  // Filled where groups have several sizes, largest first: what a device of each needs, and the units that they compute.
  struct OfSize {
    int size = 1, groups = 0;
    std::uint64_t units = 0;
    MemoryParts device_parts;
  };
  std::vector<OfSize> sizes;
  std::string model;               // "llama, 134.5 M parameters, f32"
  std::uint64_t device_bytes = 0;  // memory a device: weights, activations, tiles; of several sizes the most
  MemoryParts device_parts;        // the same by part, in bytes
  std::uint64_t num_samples = 0;
  std::uint64_t num_units = 0;
  std::uint64_t num_units_done = 0;  // committed by an earlier run
  std::uint64_t num_tokens = 0;
  std::uint64_t longest_sample = 0;  // tokens
  std::uint64_t results_bytes = 0;   // of the files when all is done
  std::uint64_t needed_bytes = 0;    // of the file system from now on: without what stands there already
  std::uint64_t free_bytes = 0;      // of the results' file system
  Notes notes;                       // more lines, name and value
  std::string first_prompt;  // of the first record, line by line as `plan` prints it; empty: the task has no prompts
};

}  // namespace magister
