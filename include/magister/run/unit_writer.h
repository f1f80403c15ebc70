// UnitWriter: writes and commits units on its own thread while the next ones are computed, in the order in which they come. One or two are in flight,
// and of small ones as many as 32 MiB hold: memory stays bounded, and a clean stop loses at most the unit that is being computed.
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
  ~UnitWriter();  // waits for the writes in flight and drops their error: the job is being aborted then

  // Waits until few enough units are in flight (the error of one is thrown here), then leaves this one to the thread.
  void submit(const Unit& unit, std::vector<ColumnBytes> columns);
  // Waits until everything is committed, and calls heartbeat() after each unit; throws the error of a write.
  void drain(const std::function<void()>& heartbeat = {});
  // Seconds that submit() and drain() waited, and that the writing itself took.
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
  // Tells the tickets what was written. `until` is asked under the lock.
  void wait(const std::function<bool()>& until);

  ResultsFile& file_;
  UnitTickets& tickets_;
  int group_;
  double wait_seconds_ = 0;
  std::thread thread_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<Rows> waiting_;
  std::uint64_t waiting_bytes_ = 0;            // of them and of the one that is being written
  std::size_t unfinished_ = 0;                 // those units
  std::vector<std::uint64_t> written_tokens_;  // of units that the tickets do not know of
  std::exception_ptr error_;
  bool ends_ = false;
  double write_seconds_ = 0;  // read after drain()
};

}  // namespace magister
