// ResultsFile: one HDF5 file that all group leaders fill at the same time and that survives kill -9 at any moment. The
// layout is fixed and the metadata frozen before any work; rows are written at fixed offsets. A unit is committed by
// its crc32c and its done flag, in this order: rows, crc, fdatasync, flag. States on disk: X.h5.creating (discarded) ->
// X.h5.partial (resumable) -> X.h5 (complete, never opened for writing).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "magister/core/file_descriptor.h"
#include "magister/core/types.h"
#include "magister/core/unit_set.h"
#include "magister/parallel/communicator.h"

namespace magister {

// kUtf8: strings of one fixed length, the column's width. kText: strings of any length, whose bytes are in the file's
// heap; written by write_texts() only. Files store these numbers (layout_sha256): add new types at the end.
enum class ColumnType { kU8, kI32, kU32, kU64, kF16, kF32, kUtf8, kText };
std::size_t size_of(ColumnType type);  // kUtf8: 1; kText: 16, a descriptor

// One dataset of the file. A row is `width` elements; width 0 means a 1-D dataset.
struct ColumnSpec {
  std::string path;  // "/tokens/id"
  ColumnType type = ColumnType::kF32;
  std::uint64_t num_rows = 0;
  std::uint64_t width = 0;
  std::string comment;
  std::string units;  // empty: no unit
  // Which rows of this column belong to a unit: kRows = its token rows, kSamples = its samples, kFixed = none, written
  // once at planning.
  enum class Extent { kFixed, kSamples, kRows } extent = Extent::kRows;
  std::uint64_t heap_bytes = 0;  // kText: space to reserve for the strings (TextHeapBytes); not stored
};

// A column of a task, defined once in tasks/<task>/columns.h: everything but its size, which spec() adds. T: type of
// its numbers; std::string: texts of any length.
template <typename T>
struct Column {
  const char* path;
  const char* comment = "";
  const char* units = "";
  ColumnSpec::Extent extent = ColumnSpec::Extent::kSamples;

  static constexpr ColumnType kType = std::is_same_v<T, std::uint8_t>    ? ColumnType::kU8
                                      : std::is_same_v<T, std::int32_t>  ? ColumnType::kI32
                                      : std::is_same_v<T, std::uint32_t> ? ColumnType::kU32
                                      : std::is_same_v<T, std::uint64_t> ? ColumnType::kU64
                                      : std::is_same_v<T, float>         ? ColumnType::kF32
                                                                         : ColumnType::kText;
  static_assert(kType != ColumnType::kText || std::is_same_v<T, std::string>);
  ColumnSpec spec(std::uint64_t num_rows, std::uint64_t width = 0) const { return spec(num_rows, width, comment); }
  // With a comment that depends on the run.
  ColumnSpec spec(std::uint64_t num_rows, std::uint64_t width, std::string of_run) const {
    return {path, kType, num_rows, width, std::move(of_run), units, extent};
  }
  // True for a column of this type and extent; null: false.
  bool fits(const ColumnSpec* column) const {
    return column != nullptr && column->type == kType && column->extent == extent;
  }
};

// The group of columns that hold fields of the data set's records, each under its name there.
inline constexpr const char* kRecordGroup = "/record/";

using AttributeValue = std::variant<std::uint8_t, std::uint64_t, std::string>;
using Attributes = std::vector<std::pair<std::string, AttributeValue>>;  // root attributes of a file, in order
struct ResultsSpec {
  std::vector<ColumnSpec> columns;  // without /commit, which the writer adds
  Attributes attributes;            // root attributes in order, without `complete`
  std::uint64_t num_units = 0;
  // Path of the 1-D column for the NXdata default group that H5Web and silx draw; empty: none.
  std::string default_plot_column;
  // Allocates the file's blocks before any work, so that a full disk is an error at once (else the file is sparse).
  bool preallocate = false;
  // Everything that units are computed from (/samples and /tokens) is written before freeze(), which stores its
  // checksum per unit in /commit/input_crc32c. A resumed run then detects whether it changed.
  bool checks_inputs = false;
};

// How rows are written to the file; the bytes are the same.
struct ResultsAccess {
  // kMpio: through HDF5's MPI driver, for file systems that need MPI-IO hints. HDF5 and MPI are called from the thread
  // that calls write(), read() and commit(): with kMpio it must be one thread of the rank.
  enum class Driver { kPwrite, kMpio } driver = Driver::kPwrite;
  std::vector<std::pair<std::string, std::string>> hints;  // for MPI_Info, with kMpio
};

// Bytes of all datasets of the file that create() would make, without some thousand bytes of HDF5 metadata.
std::uint64_t results_bytes(const ResultsSpec& spec);

// The lock that refuses a second run on the same results within a second. It waits until leftover processes of a killed
// run have exited.
class ResultsLock {
 public:
  // Every rank holds it shared as long as this object lives. Rank 0 first takes it exclusively, unless another lock of
  // this run keeps other runs out for as long (held_already). Throws Error(kInputOutput) naming the holder (host,
  // process, start time). Collective over world.
  ResultsLock(const Communicator& world, const std::string& final_path, bool held_already = false);
  ~ResultsLock();
  ResultsLock(ResultsLock&&) noexcept;

 private:
  std::string path_;
  FileDescriptor file_;
};

// The process named in the lock file of these results; nullopt without a lock file. The lock itself is not touched, so
// looking at a run never disturbs it. Local.
struct LockHolder {
  std::string text;           // "process 4711 on node3 since 2026-11-22T09:01:02Z, job 17"
  std::optional<bool> alive;  // nullopt: a process of another host, or unknown
};
std::optional<LockHolder> lock_holder(const std::string& final_path);

struct UnitCounts {
  std::uint64_t units = 0, done = 0;
};

class ResultsFile {
 public:
  enum class State { kAbsent, kPartial, kComplete };
  // The state on disk of this final path ("runs/x/teacher.h5"). A leftover .creating counts as absent. A folder, a
  // symbolic link or anything else that is not a regular file is Error(kInputOutput). Local.
  static State state_on_disk(const std::string& final_path);

  // Creates X.h5.creating with everything in `spec` and opens it so that write() can fill the fixed columns. Refused if
  // the disk has too little space. An error before freeze() leaves no file. Collective over world.
  static ResultsFile create(const Communicator& world, const std::string& final_path, const ResultsSpec& spec,
                            const ResultsAccess& access = {});
  // Opens X.h5.partial and checks it against the expected attributes (plan, config, model, tokenizer, data set hashes).
  // A mismatch is Error(kConfig) that names the key or attribute and both values. A file that does not open, is
  // truncated, or whose shapes, offsets or flags were changed is Error(kData). It is never overwritten. Reads the done
  // flags.
  // Then every rank reads its share of the units again. Changed inputs of a unit are Error(kData) with its number; a
  // committed unit whose bytes changed is reported and pending again. If stop() returns true on a rank, all ranks throw
  // Error(kStopped). Collective over world.
  static ResultsFile resume(const Communicator& world, const std::string& final_path, const Attributes& expected,
                            const ResultsAccess& access = {}, const std::function<bool()>& stop = {},
                            const std::string& task_key = "tasks.0.");
  ResultsFile(ResultsFile&&) noexcept;
  ~ResultsFile();  // local: closes descriptors

  // Compares the root attributes of the file at `path` with those this run expects (identity.h). Error(kConfig) names
  // the differences; task_key is the prefix of a task's keys there. Local.
  static void check_attributes(const std::string& path, const Attributes& expected,
                               const std::string& task_key = "tasks.0.");

  // A root attribute that is a number, read by rank 0; Error(kData) if there is none of that name. Collective over the
  // world.
  static std::uint64_t read_number(const Communicator& world, const std::string& path, const std::string& attribute);

  // A root attribute that is text; Error(kData) if there is none of that name. Local.
  static std::string read_text(const std::string& path, const std::string& attribute);

  // How many units of the file at `path` are committed; Error(kData) if it is not a results file. Local.
  static UnitCounts unit_counts(const std::string& path);

  // False: write(), read() and commit() must be called from one thread of the rank (ResultsAccess::Driver::kMpio).
  bool any_thread() const;
  // Rows [first_row, first_row + n) of a column; data.size() must be n whole rows. Local; ranks write disjoint ranges.
  void write(const std::string& column_path, std::uint64_t first_row, std::span<const std::byte> data);
  void read(const std::string& column_path, std::uint64_t first_row, std::span<std::byte> data) const;

  // Bytes per row of a column. Local.
  std::size_t row_bytes(const std::string& column_path) const;
  // Writes strings of a kText column from first_row on; call it with ascending rows. Between create() and freeze(), in
  // a world of one rank, because HDF5 writes them and metadata changes. A string must not contain NUL.
  void write_texts(const std::string& column_path, std::uint64_t first_row, std::span<const std::string> texts);

  // Call it after every rank wrote its fixed columns. Writes their crc32c and those of the units' inputs, fsync,
  // renames .creating -> .partial, fsync of the directory. Collective over world.
  void freeze();

  // Units not committed yet, equal on every rank (read once at resume; all units after create).
  const UnitSet& pending_units() const;
  // Number of their rows. Local; reads 16 bytes per unit at most.
  std::uint64_t pending_rows() const;
  std::uint64_t num_units() const;
  // Rows of the largest unit; 0: no units. Reads 16 bytes per sample, in blocks. Local.
  std::uint64_t most_rows_of_a_unit() const;
  // Sample and row ranges from /commit/unit_begin and /samples/offset. Local.
  Unit unit(std::uint64_t unit_index) const;

  // crc32c of a unit's bytes in the file. Local.
  std::uint32_t checksum(const Unit& unit) const;
  // Reads the unit's rows back from the page cache, computes their crc32c over all kSamples and kRows columns in the
  // order of the spec, writes crc, fdatasync, writes done. Local; the leader that wrote the rows calls it.
  void commit(const Unit& unit);
  // Commits several units with one fdatasync.
  void commit(std::span<const Unit> units);

  // After this call, rows that ranks on other hosts have committed are visible; call it before reading them. Local.
  void reopen();

  // Requires that all units are done: verifies flags, sets complete = 1, fsync, renames .partial -> X.h5, fsync of the
  // directory. Collective over world.
  void complete(const Communicator& world);

 private:
  struct Columns;
  explicit ResultsFile(std::unique_ptr<Columns> columns);
  std::unique_ptr<Columns> columns_;
};

}  // namespace magister
