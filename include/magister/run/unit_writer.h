// UnitWriter: writes and commits units on its own thread while the next ones are computed, in the order of submission.
// One or two units are in flight, or up to 17 small ones that together have at most 32 MiB. So memory is bounded, and a
// clean stop loses at most the unit that is being computed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/results_file.h"
#include "magister/parallel/unit_tickets.h"

namespace magister {

// The bytes of one column for one unit.
struct ColumnBytes {
  std::string path;
  std::vector<std::byte> bytes;
  bool of_samples = false;  // starts at the unit's first sample, not at its first row
};

// Makes a column with one row for each sample.
template <typename T>
ColumnBytes samples_column(const Column<T>& column, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {column.path, {bytes.begin(), bytes.end()}, true};
}

class UnitWriter {
 public:
  // Keeps references to `file` and `tickets`. group: index of the group in this rank.
  UnitWriter(ResultsFile& file, UnitTickets& tickets, int group = 0) : file_(file), tickets_(tickets), group_(group) {}
  ~UnitWriter();  // waits for the writes in flight and drops their error: the job is then being aborted

  // Waits until few enough units are in flight, then passes this one to the thread. Throws the error of an earlier
  // write.
  void submit(const Unit& unit, std::vector<ColumnBytes> columns);
  // Waits until all units are committed, and calls heartbeat() after each one. Throws the error of a write.
  void drain(const std::function<void()>& heartbeat = {});
  // The seconds that submit() and drain() waited, and those of the writes themselves.
  double wait_seconds() const { return wait_seconds_; }
  double write_seconds() const { return write_seconds_; }

 private:
  struct Rows {
    Unit unit;
    std::vector<ColumnBytes> columns;
  };
  void write(const Rows& rows);
  void write_those_waiting();
  bool has_thread();
  // Waits until until(), which is called under the lock, then reports the written units to the tickets.
  void wait(const std::function<bool()>& until);

  ResultsFile& file_;
  UnitTickets& tickets_;
  int group_;
  double wait_seconds_ = 0;
  std::thread thread_;
  std::mutex mutex_;  // protects all members below
  std::condition_variable changed_;
  std::deque<Rows> waiting_;
  std::uint64_t waiting_bytes_ = 0;            // of these and of the unit that is being written
  std::size_t unfinished_ = 0;                 // number of these units
  std::vector<std::uint64_t> written_tokens_;  // of units not yet reported to the tickets
  std::exception_ptr error_;
  bool ends_ = false;
  double write_seconds_ = 0;  // read after drain()
};

}  // namespace magister
