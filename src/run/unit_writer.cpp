// Writes the rows and then the commit record of each unit, on a thread of its own. Order of a commit: see
// ResultsFile::commit.
#include "magister/run/unit_writer.h"

#include <chrono>
#include <system_error>

#include "magister/core/log.h"

namespace magister {
namespace {

// Limits of the queue. A pass on a GPU ends with several small units at once, and the next pass should be queued
// meanwhile. The bytes include the unit that is being written; the number does not.
constexpr std::uint64_t kMostWaitingBytes = 32 << 20;
constexpr std::size_t kMostWaiting = 16;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::uint64_t bytes_of(const std::vector<ColumnBytes>& columns) {
  std::uint64_t bytes = 0;
  for (const ColumnBytes& column : columns) bytes += column.bytes.size();
  return bytes;
}

}  // namespace

UnitWriter::~UnitWriter() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void UnitWriter::write(const Rows& rows) {
  for (const ColumnBytes& column : rows.columns) {
    if (column.bytes.empty()) continue;
    file_.write(column.path, column.of_samples ? rows.unit.samples.begin : rows.unit.rows.begin, column.bytes);
  }
  file_.commit(rows.unit);
  log_local(LogLevel::kDebug, "unit {} committed: {} tokens of {} samples", rows.unit.index, rows.unit.rows.size(),
            rows.unit.samples.size());
}

// After an error nothing more is written, and the task ends.
void UnitWriter::write_those_waiting() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Rows rows = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    std::exception_ptr error;
    try {
      write(rows);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    write_seconds_ += seconds_since(start);
    waiting_bytes_ -= bytes_of(rows.columns);
    --unfinished_;
    if (error) {
      error_ = error;
      ends_ = true;
      waiting_.clear();
    } else {
      written_tokens_.push_back(rows.unit.rows.size());
    }
    changed_.notify_all();
  }
}

// True if the writer's thread runs. If it cannot be started, nothing is lost: the calling thread writes.
bool UnitWriter::has_thread() {
  if (thread_.joinable() || !file_.any_thread()) return thread_.joinable();
  try {
    thread_ = std::thread([this] { write_those_waiting(); });
  } catch (const std::system_error&) {
  }
  return thread_.joinable();
}

void UnitWriter::submit(const Unit& unit, std::vector<ColumnBytes> columns) {
  tickets_.report_computed();
  Rows rows{unit, std::move(columns)};
  if (!has_thread()) {  // with MPI-IO only this thread may call MPI and HDF5, or no thread could be started
    const auto start = std::chrono::steady_clock::now();
    write(rows);
    write_seconds_ += seconds_since(start);
    wait_seconds_ = write_seconds_;
    tickets_.report_done(unit.rows.size(), group_);
    return;
  }
  const std::uint64_t bytes = bytes_of(rows.columns);
  wait(
      [&] { return unfinished_ <= 1 || (unfinished_ <= kMostWaiting && waiting_bytes_ + bytes <= kMostWaitingBytes); });
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(rows));
    waiting_bytes_ += bytes;
    ++unfinished_;
  }
  changed_.notify_all();
}

void UnitWriter::drain(const std::function<void()>& heartbeat) {
  const auto unfinished = [this] {
    const std::lock_guard lock(mutex_);
    return unfinished_;
  };
  for (std::size_t left = unfinished(); left > 0; left = unfinished()) {
    wait([&] { return unfinished_ < left; });
    if (heartbeat) heartbeat();
  }
  wait([] { return true; });
}

void UnitWriter::wait(const std::function<bool()>& until) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::uint64_t> written;
  std::exception_ptr error;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || until(); });
    written.swap(written_tokens_);
    error = error_;
  }
  wait_seconds_ += seconds_since(start);
  // Reported on the thread that claims units: one thread of a group calls MPI.
  for (const std::uint64_t tokens : written) tickets_.report_done(tokens, group_);
  if (error) std::rethrow_exception(error);
}

}  // namespace magister
