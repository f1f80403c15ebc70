// UnitWriter: writes and commits one unit on its own thread while the next one is computed. One unit in flight: memory
// stays bounded, and a stop loses at most the unit that is being computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/results_file.h"
#include "magister/parallel/unit_tickets.h"

namespace magister {

// The bytes of one column for one unit.
struct ColumnBytes {
  std::string path;
  std::vector<std::byte> bytes;
  bool of_samples = false;  // begins at the unit's first sample, not at its first row
};

// One number, or one row, a sample.
template <typename T>
ColumnBytes samples_column(const char* path, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {path, {bytes.begin(), bytes.end()}, true};
}

class UnitWriter {
 public:
  // `file` and `tickets` are kept by reference. group: which of this rank's.
  UnitWriter(ResultsFile& file, UnitTickets& tickets, int group = 0) : file_(file), tickets_(tickets), group_(group) {}
  ~UnitWriter();  // waits for the write in flight and drops its error: the job is being aborted then

  // Waits for the unit before (its error is thrown here), then starts writing this one.
  void submit(const Unit& unit, std::vector<ColumnBytes> columns);
  // Waits until everything is committed; throws the error of the last write.
  void drain();
  // Seconds that submit() and drain() waited, and that the writing itself took.
  double wait_seconds() const { return wait_seconds_; }
  double write_seconds() const { return write_seconds_; }

 private:
  void write(const Unit& unit, const std::vector<ColumnBytes>& columns);

  ResultsFile& file_;
  UnitTickets& tickets_;
  int group_;
  std::future<void> in_flight_;
  std::uint64_t pending_tokens_ = 0;
  double wait_seconds_ = 0;
  double write_seconds_ = 0;  // touched by the writing thread only while it runs, read after it was joined
};

}  // namespace magister
