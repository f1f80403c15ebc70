// Verifies a results file from its bytes: the command `check`. Structure, offsets, flags, the crc32c of every committed
// unit, and the rules that each row keeps (what a row promises stands in INTERFACE section 4).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "magister/core/error.h"

namespace magister {

struct CheckReport {
  static constexpr std::size_t kMaxFaults = 100;  // told in full; the rest is counted

  std::string path;
  bool complete = false;  // the file says so
  std::uint64_t num_units = 0, num_units_done = 0, num_samples = 0, num_tokens = 0, bytes_read = 0;
  std::uint64_t num_faults = 0;
  std::vector<std::string> faults;  // one line each, with the place: "unit 3: ..."

  // kData: damaged. kStopped: sound, but not every unit is committed. kDone: whole.
  ExitCode exit_code() const;
  // One line a fault, then one line of result.
  std::string text() const;
};

// Reads the whole file once in bounded memory. Partial files too: their committed units are checked. Throws Error(kData)
// when it cannot even be read as a results file. progress(units checked, units in all). Local.
CheckReport check_results(const std::string& path,
                          const std::function<void(std::uint64_t done, std::uint64_t all)>& progress = {});

}  // namespace magister
