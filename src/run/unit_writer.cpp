// Rows, then the commit record, on a thread of their own. Order of a commit: see ResultsFile::commit.
#include "magister/run/unit_writer.h"

#include <chrono>
#include <memory>

#include "magister/core/log.h"

namespace magister {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

UnitWriter::~UnitWriter() {
  if (in_flight_.valid()) in_flight_.wait();
}

void UnitWriter::write(const Unit& unit, const std::vector<ColumnBytes>& columns) {
  const auto start = std::chrono::steady_clock::now();
  for (const ColumnBytes& column : columns) {
    if (column.bytes.empty()) continue;
    file_.write(column.path, column.of_samples ? unit.samples.begin : unit.rows.begin, column.bytes);
  }
  file_.commit(unit);
  log_local(LogLevel::kDebug, "unit {} committed: {} tokens of {} samples", unit.index, unit.rows.size(),
            unit.samples.size());
  write_seconds_ += seconds_since(start);
}

void UnitWriter::submit(const Unit& unit, std::vector<ColumnBytes> columns) {
  tickets_.report_computed();
  drain();
  if (!file_.any_thread()) {  // MPI-IO: this thread is the one that talks to MPI, and HDF5 knows no threads
    write(unit, columns);
    wait_seconds_ = write_seconds_;
    tickets_.report_done(unit.rows.size(), group_);
    return;
  }
  // Deferred only where no thread can be started (the library tries one first): drain() writes then, and nothing is lost.
  // The function is given as an lvalue: libstdc++ 12 moves it into the thread that then fails, and would defer what is left of it.
  const auto write_them = [this, unit, all = std::make_shared<const std::vector<ColumnBytes>>(std::move(columns))] {
    write(unit, *all);
  };
  in_flight_ = std::async(std::launch::async | std::launch::deferred, write_them);
  pending_tokens_ = unit.rows.size();
}

void UnitWriter::drain() {
  if (!in_flight_.valid()) return;
  const auto start = std::chrono::steady_clock::now();
  in_flight_.get();
  wait_seconds_ += seconds_since(start);
  tickets_.report_done(pending_tokens_, group_);  // from the thread that draws: one thread of a group talks to MPI
}

}  // namespace magister
