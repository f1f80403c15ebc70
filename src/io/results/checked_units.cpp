// A unit whose bytes were correct is not read again.
#include "magister/io/results/checked_units.h"

#include <algorithm>

#include "io/results/columns.h"
#include "io/results/unit_checks.h"
#include "magister/core/error.h"
#include "magister/io/agreed_errors.h"

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

void CheckedUnits::require(IndexRange samples) {
  if (samples.size() == 0) return;
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), samples.begin);
  MAGISTER_CHECK(after != begins_.begin() && samples.end <= begins_.back(), ExitCode::kInternal,
                 "{}: samples {} to {} of {} (they are not there); report this", printable(file_.path()), samples.begin,
                 samples.end, begins_.back());
  for (auto unit = static_cast<std::uint64_t>(after - begins_.begin()) - 1;
       unit < sound_.size() && begins_[unit] < samples.end; ++unit)
    require_unit(unit);
}

void CheckedUnits::require_all(const Communicator& world) {
  const IndexRange units = share_of(world, sound_.size());
  run_agreed(world, [&] {
    for (std::uint64_t unit = units.begin; unit < units.end; ++unit) require_unit(unit);
  });
}

void CheckedUnits::require_unit(std::uint64_t index) {
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
