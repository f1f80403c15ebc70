// CheckedUnits: a complete results file whose units are verified before their rows are used. The structure is checked
// on opening, a unit's bytes against their crc32c when the first of its samples is requested. Local; any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/reader.h"
#include "magister/parallel/communicator.h"

namespace magister {

class CheckedUnits {
 public:
  // Keeps a reference to file. Error(kData) if it is not complete, or if offsets, flags or layout were changed.
  explicit CheckedUnits(const ResultsReader& file);
  // Error(kData) if the bytes of the sample's unit are not those that were committed. Reads the unit once, in bounded
  // memory.
  void require(std::uint64_t sample) { require(IndexRange{sample, sample + 1}); }
  // Checks all units of some samples, except those already checked.
  void require(IndexRange samples);
  // Checks every unit, each rank a share of them; all ranks throw the first fault. Collective over world.
  void require_all(const Communicator& world);

 private:
  void require_unit(std::uint64_t unit);

  const ResultsReader& file_;
  std::vector<std::uint64_t> begins_;  // first sample of each unit, and the end
  std::mutex mutex_;
  std::vector<bool> sound_;
};

}  // namespace magister
