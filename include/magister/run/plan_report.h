// PlanReport: what `plan` prints about a task. Bytes are exact if they follow from the data, otherwise an upper bound.
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
  // Filled if groups have several sizes, largest first: for each size the memory that a device needs, and the units
  // that the groups compute.
  struct OfSize {
    int size = 1, groups = 0;
    std::uint64_t units = 0;
    MemoryParts device_parts;
  };
  std::vector<OfSize> sizes;
  std::string model;               // "llama, 134.5 M parameters, f32"
  std::uint64_t device_bytes = 0;  // memory of one device: weights, activations, tiles; for several sizes the largest
  MemoryParts device_parts;        // the same, itemised, in bytes
  std::uint64_t num_samples = 0;
  std::uint64_t num_units = 0;
  std::uint64_t num_units_done = 0;  // committed by an earlier run
  std::uint64_t num_tokens = 0;
  std::uint64_t longest_sample = 0;  // tokens
  std::uint64_t results_bytes = 0;   // size of the files when all is done
  std::uint64_t needed_bytes = 0;    // still to be allocated in the file system
  std::uint64_t free_bytes = 0;      // in the results' file system
  Notes notes;                       // more lines, name and value
  std::string first_prompt;          // the first record's, in lines as `plan` prints it; empty: the task shows none
};

}  // namespace magister
