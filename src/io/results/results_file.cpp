// Rows at fixed offsets, and the commit protocol. layout.h creates and reads the metadata; after that only plain bytes
// are read and written.
#include "magister/io/results/results_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/mpio_file.h"
#include "io/results/columns.h"
#include "io/results/text_heap.h"
#include "io/results/unit_checks.h"
#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/io/agreed_errors.h"
#include "magister/io/results/identity.h"
#include "magister/io/results/reader.h"

namespace magister {

namespace {

std::string creating(const std::string& final_path) { return final_path + ".creating"; }
std::string partial(const std::string& final_path) { return final_path + ".partial"; }

// Opens the file for rows of ranks on several hosts.
ResultsColumns open_shared(const std::string& path, std::vector<PlacedColumn> placed, const ResultsAccess& access) {
  for (const PlacedColumn& column : placed) {
    MAGISTER_CHECK(!column.is_packed, ExitCode::kData,
                   "{}: dataset {} was packed by another program (a run writes rows to fixed places, and nothing is "
                   "overwritten); put back the file as it was, or put it aside with --fresh",
                   printable(path), printable(column.spec.path));
  }
  PosixFile file(path);
  file.protect_neighbours();
  ResultsColumns columns(std::move(file), std::move(placed));
  if (access.driver == ResultsAccess::Driver::kMpio) columns.open_mpio(access);
  return columns;
}

}  // namespace

struct ResultsFile::Columns {
  std::string final_path;
  ResultsColumns at;
  UnitSet pending;
  std::optional<TextHeapWriter> texts;  // for one column, between create() and freeze()
  std::string texts_column;
  const Communicator* world = nullptr;
  bool is_creating = false;  // true from the creation of X.h5.creating to its rename

  // An error on any rank during this time leaves no file: that rank removes it, and the others end with it. The lock of
  // the results is still held, so it cannot be another run's file.
  ~Columns() {
    if (is_creating) ::unlink(creating(final_path).c_str());
  }
};

namespace {

// Rank 0 sends the columns' places as text, so that only one rank uses HDF5.
std::string to_text(const std::vector<PlacedColumn>& columns) {
  nlohmann::json list = nlohmann::json::array();
  for (const PlacedColumn& c : columns) {
    list.push_back({c.spec.path, static_cast<int>(c.spec.type), c.spec.num_rows, c.spec.width,
                    static_cast<int>(c.spec.extent), c.offset});
  }
  return list.dump();
}

std::vector<PlacedColumn> from_text(const std::string& text) {
  std::vector<PlacedColumn> columns;
  for (const auto& entry : nlohmann::json::parse(text)) {
    PlacedColumn column;
    column.spec.path = entry[0];
    column.spec.type = static_cast<ColumnType>(entry[1].get<int>());
    column.spec.num_rows = entry[2];
    column.spec.width = entry[3];
    column.spec.extent = static_cast<ColumnSpec::Extent>(entry[4].get<int>());
    column.offset = entry[5];
    columns.push_back(std::move(column));
  }
  return columns;
}

// True if a regular file exists there. Anything else is refused: results must not follow a link out of the folder, and
// a folder of that name would be noticed only at the end of the work.
bool exists(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) {
    MAGISTER_CHECK(
        errno == ENOENT || errno == ENOTDIR, ExitCode::kInputOutput,
        "{}: cannot be looked at: {} (its state decides how the run begins); check the path and its permissions",
        printable(path), std::strerror(errno));
    return false;
  }
  MAGISTER_CHECK(S_ISREG(status.st_mode), ExitCode::kInputOutput,
                 "{}: is {} (results are written into regular files only); "
                 "move it away",
                 printable(path),
                 S_ISDIR(status.st_mode)   ? "a folder"
                 : S_ISLNK(status.st_mode) ? "a symbolic link"
                                           : "no regular file");
  return true;
}

}  // namespace

ResultsFile::ResultsFile(std::unique_ptr<Columns> columns) : columns_(std::move(columns)) {}
ResultsFile::ResultsFile(ResultsFile&&) noexcept = default;
ResultsFile::~ResultsFile() = default;

ResultsFile::State ResultsFile::state_on_disk(const std::string& final_path) {
  if (exists(final_path)) return State::kComplete;
  if (exists(partial(final_path))) return State::kPartial;
  return State::kAbsent;
}

ResultsFile ResultsFile::create(const Communicator& world, const std::string& final_path, const ResultsSpec& spec,
                                const ResultsAccess& access) {
  auto columns = std::make_unique<Columns>();
  columns->final_path = final_path;
  columns->world = &world;
  const std::string path = creating(final_path);
  std::string layout;
  if (world.rank() == 0) {
    MAGISTER_CHECK(state_on_disk(final_path) == State::kAbsent, ExitCode::kInputOutput,
                   "{}: results appeared while the run was planned (another run works here); look at it first",
                   printable(final_path));
    if (exists(path)) ::unlink(path.c_str());  // from a run that died while creating it: nothing was computed yet
    require_free_bytes(path, results_bytes(spec));
    columns->is_creating = true;
    fail_point("results.create.begin");
    if (access.driver == ResultsAccess::Driver::kMpio) MpioFile::create(path, access);
    write_layout(path, spec, access.driver == ResultsAccess::Driver::kMpio);
    if (spec.preallocate) PosixFile(path).preallocate();
    fail_point("results.create.closed");
    layout = to_text(read_layout(path));
  }
  world.broadcast(layout, 0);
  columns->is_creating = true;
  // All ranks have opened it, or all leave: if one rank fails later and removes the file, the others are not affected.
  run_agreed(world, [&] { columns->at = open_shared(path, from_text(layout), access); });
  columns->pending = UnitSet::all(columns->at.num_units());
  // Flags and checksums are written as zeros, so that they have blocks of their own and do not depend on a sparse file.
  if (world.rank() == 0) {
    columns->at.write_zeros("/commit/done");
    columns->at.write_zeros("/commit/crc32c");
  }
  return ResultsFile(std::move(columns));
}

void ResultsFile::freeze() {
  const Communicator& world = *columns_->world;
  fail_point("results.freeze.begin");
  if (columns_->texts) columns_->texts->close();
  columns_->texts.reset();
  columns_->at.sync();
  world.barrier();
  // All ranks have opened it again, or all leave: a rank that fails removes the file.
  run_agreed(world, [&] {
    columns_->at.reopen(creating(columns_->final_path));  // other hosts wrote some of the fixed columns
    write_input_checksums(world, columns_->at);
    fail_point("results.freeze.inputs_summed");
    columns_->at.sync();
  });
  if (world.rank() == 0) {
    const std::uint32_t crc = columns_->at.plan_checksum();
    columns_->at.write("/commit/plan_crc32c", 0, std::as_bytes(std::span(&crc, 1)));
    columns_->at.sync();
    fail_point("results.freeze.synced");
    rename_durably(creating(columns_->final_path), partial(columns_->final_path));
    fail_point("results.freeze.renamed");
  }
  world.barrier();
  columns_->is_creating = false;
  reopen();
}

ResultsFile ResultsFile::resume(const Communicator& world, const std::string& final_path, const Attributes& expected,
                                const ResultsAccess& access, const std::function<bool()>& stop,
                                const std::string& task_key) {
  auto columns = std::make_unique<Columns>();
  columns->final_path = final_path;
  columns->world = &world;
  const std::string path = partial(final_path);
  std::string layout, pending;
  if (world.rank() == 0) {
    check_attributes(path, expected, task_key);
    columns->at = open_shared(path, read_layout(path), access);
    const std::vector<std::string> faults = structure_faults(columns->at, read_attributes(path));
    MAGISTER_CHECK(faults.empty(), ExitCode::kData,
                   "{}: {} (the file was changed or damaged, and nothing is overwritten); put "
                   "it aside with --fresh",
                   printable(path), faults.empty() ? "" : faults.front());
    layout = to_text(columns->at.all());
    pending = columns->at.pending_units().to_bytes();
  }
  world.broadcast(layout, 0);
  world.broadcast(pending, 0);
  if (world.rank() != 0) columns->at = open_shared(path, from_text(layout), access);
  columns->pending = still_to_do(world, columns->at, UnitSet::from_bytes(pending), stop);
  return ResultsFile(std::move(columns));
}

std::uint64_t ResultsFile::read_number(const Communicator& world, const std::string& path,
                                       const std::string& attribute) {
  std::uint64_t value = 0;
  if (world.rank() == 0) {
    const Attributes attributes = read_attributes(path);
    const auto found =
        std::find_if(attributes.begin(), attributes.end(), [&](const auto& a) { return a.first == attribute; });
    const auto* number = found == attributes.end() ? nullptr : std::get_if<std::uint64_t>(&found->second);
    MAGISTER_CHECK(number != nullptr, ExitCode::kData,
                   "{}: root attribute {} is missing or not a number (the file was changed); "
                   "start over with --fresh",
                   printable(path), attribute);
    value = *number;
  }
  world.broadcast(&value, sizeof value, 0);
  return value;
}

std::string ResultsFile::read_text(const std::string& path, const std::string& attribute) {
  const Attributes attributes = read_attributes(path);
  const auto found =
      std::find_if(attributes.begin(), attributes.end(), [&](const auto& a) { return a.first == attribute; });
  const auto* text = found == attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
  MAGISTER_CHECK(text != nullptr, ExitCode::kData,
                 "{}: root attribute {} is missing or not a text (the file was changed); "
                 "start over with --fresh",
                 printable(path), attribute);
  return *text;
}

UnitCounts ResultsFile::unit_counts(const std::string& path) {
  const ResultsReader file(path);  // opens it for reading alone: who may not write it may still count
  const std::uint64_t units = file.columns().num_units();
  return {units, units - file.columns().pending_units().size()};
}

void ResultsFile::check_attributes(const std::string& path, const Attributes& expected, const std::string& task_key) {
  const std::string differences = identity_differences(read_attributes(path), expected, task_key);
  MAGISTER_CHECK(
      differences.empty(), ExitCode::kConfig,
      "{}: {} (it belongs to another experiment, model, data set or kind of machine, and nothing is overwritten); give "
      "the run another name, or put the old file aside with --fresh",
      printable(path), differences);
}

void ResultsFile::write(const std::string& column_path, std::uint64_t first_row, std::span<const std::byte> data) {
  columns_->at.write(column_path, first_row, data);
}

void ResultsFile::write_texts(const std::string& column_path, std::uint64_t first_row,
                              std::span<const std::string> texts) {
  Columns& c = *columns_;
  const std::string& path = c.at.path();
  MAGISTER_CHECK(
      c.world->size() == 1 && path == creating(c.final_path) && c.at.at(column_path).spec.type == ColumnType::kText,
      ExitCode::kInternal, "{}: texts of {} cannot be written now (its metadata is frozen); report this",
      printable(path), column_path);
  if (c.texts && c.texts_column != column_path) c.texts->close(), c.texts.reset();
  if (!c.texts) c.texts.emplace(path, column_path);
  c.texts_column = column_path;
  c.texts->write(first_row, texts);
}

void ResultsFile::read(const std::string& column_path, std::uint64_t first_row, std::span<std::byte> data) const {
  columns_->at.read(columns_->at.at(column_path), first_row, data);
}

std::size_t ResultsFile::row_bytes(const std::string& column_path) const {
  return columns_->at.at(column_path).row_bytes();
}

const UnitSet& ResultsFile::pending_units() const { return columns_->pending; }
std::uint64_t ResultsFile::pending_rows() const { return columns_->at.rows_of(columns_->pending); }
std::uint64_t ResultsFile::num_units() const { return columns_->at.num_units(); }
std::uint64_t ResultsFile::most_rows_of_a_unit() const { return columns_->at.most_rows_of_a_unit(); }
Unit ResultsFile::unit(std::uint64_t unit_index) const { return columns_->at.unit(unit_index); }
std::uint32_t ResultsFile::checksum(const Unit& unit) const { return columns_->at.checksum(unit); }
void ResultsFile::commit(const Unit& unit) { commit(std::span(&unit, 1)); }

// The checksum covers the bytes read back from the file, not those passed to write(), so it describes the data on disk.
void ResultsFile::commit(std::span<const Unit> units) {
  fail_point("results.commit.rows_written");
  for (const Unit& unit : units) {
    const std::uint32_t crc = checksum(unit);
    write("/commit/crc32c", unit.index, std::as_bytes(std::span(&crc, 1)));
  }
  fail_point("results.commit.crc_written");
  columns_->at.sync_data();
  fail_point("results.commit.synced");
  const std::uint8_t done = 1;
  for (const Unit& unit : units) write("/commit/done", unit.index, std::as_bytes(std::span(&done, 1)));
  fail_point("results.commit.done_written");
}

void ResultsFile::reopen() { columns_->at.reopen(partial(columns_->final_path)); }
bool ResultsFile::any_thread() const { return !columns_->at.has_mpio(); }

void ResultsFile::complete(const Communicator& world) {
  columns_->at.sync();
  columns_->at.close_mpio();  // no rank has the file open when its metadata changes
  world.barrier();
  if (world.rank() == 0) {
    reopen();
    const std::string& final_path = columns_->final_path;
    const std::uint64_t hole = columns_->at.pending_units().next(0);
    MAGISTER_CHECK(hole == num_units(), ExitCode::kInternal,
                   "{}: unit {} is not committed (the file is not complete); run the "
                   "same command again",
                   printable(final_path), hole);
    fail_point("results.complete.begin");
    write_complete(partial(final_path));
    fail_point("results.complete.attribute_written");
    columns_->at.file().sync();
    fail_point("results.complete.synced");
    MAGISTER_CHECK(!exists(final_path), ExitCode::kInputOutput,
                   "{}: appeared during the run (a complete file is never overwritten); move one of the two away",
                   printable(final_path));
    rename_durably(partial(final_path), final_path);
    fail_point("results.complete.renamed");
  }
  world.barrier();
}

}  // namespace magister
