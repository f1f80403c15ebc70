// A unit that was found sound is not read again.
#include "magister/io/results/checked_units.h"

#include <algorithm>

#include "io/results/columns.h"
#include "magister/core/error.h"

namespace magister {

CheckedUnits::CheckedUnits(const ResultsReader& file) : file_(file) {
  MAGISTER_CHECK(file.complete(), ExitCode::kData, "{}: is not complete (rows would be missing); finish its run first",
                 printable(file.path()));
  const ResultsColumns& columns = file.columns();
  const std::vector<std::string> faults = structure_faults(columns, file.attributes());
  MAGISTER_CHECK(faults.empty(), ExitCode::kData, "{}: {} (the file is damaged); make it again", printable(file.path()),
                 faults.empty() ? "" : faults.front());
  MAGISTER_CHECK(columns.pending_units().size() == 0, ExitCode::kData,
                 "{}: is marked complete, but units are not committed (the file was changed); make it again",
                 printable(file.path()));
  begins_ = columns.rows<std::uint64_t>("/commit/unit_begin", 0, columns.num_units() + 1);
  sound_.assign(columns.num_units(), false);
}

void CheckedUnits::require(std::uint64_t sample) {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), sample);
  MAGISTER_CHECK(after != begins_.begin() && after != begins_.end(), ExitCode::kInternal,
                 "{}: sample {} of {} (there is none); report this", printable(file_.path()), sample, begins_.back());
  const auto index = static_cast<std::uint64_t>(after - begins_.begin()) - 1;
  {
    const std::lock_guard lock(mutex_);
    if (sound_[index]) return;
  }
  const ResultsColumns& columns = file_.columns();
  const std::uint32_t stored = columns.rows<std::uint32_t>("/commit/crc32c", index, 1)[0],
                      found = columns.checksum(columns.unit(index));
  MAGISTER_CHECK(
      stored == found, ExitCode::kData,
      "{}: the bytes of unit {} have crc32c {:08x}, not {:08x} as when it was committed (tokens or rows were "
      "changed since); make the file again",
      printable(file_.path()), index, found, stored);
  const std::lock_guard lock(mutex_);
  sound_[index] = true;
}

}  // namespace magister
