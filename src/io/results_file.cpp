// Rows at fixed offsets, and the commit protocol. Metadata comes from results_layout; from then on only plain bytes move.
#include "magister/io/results_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "io/posix_file.h"
#include "io/results_layout.h"
#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/io/crc32c.h"

namespace magister {
namespace fs = std::filesystem;

struct ResultsFile::Columns {
  std::string final_path;
  PosixFile file;
  std::vector<PlacedColumn> columns;
  std::map<std::string, std::size_t> by_path;
  std::vector<std::uint64_t> pending;
  std::uint64_t num_units = 0;
  const Communicator* world = nullptr;

  const PlacedColumn& at(const std::string& path) const {
    const auto found = by_path.find(path);
    MAGISTER_CHECK(found != by_path.end(), ExitCode::kInternal, "{}: there is no column {} (nothing can be written there); "
                   "report this", final_path, path);
    return columns[found->second];
  }
};

namespace {

std::string creating(const std::string& final_path) { return final_path + ".creating"; }
std::string partial(const std::string& final_path) { return final_path + ".partial"; }

// The places of the columns travel from rank 0 as text: only one rank touches HDF5.
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

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

std::string text_of(const AttributeValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return std::to_string(*number);
  return std::to_string(std::get<std::uint8_t>(value));
}

void check_column(const std::vector<PlacedColumn>& columns, const std::string& path, const std::string& file) {
  const bool there = std::any_of(columns.begin(), columns.end(), [&](const auto& c) { return c.spec.path == path; });
  MAGISTER_CHECK(there, ExitCode::kData, "{}: dataset {} is missing (the file was changed); put it aside with --fresh",
                 printable(file), path);
}

}  // namespace

ResultsFile::ResultsFile(std::unique_ptr<Columns> columns) : columns_(std::move(columns)) {
  for (std::size_t i = 0; i < columns_->columns.size(); ++i) columns_->by_path[columns_->columns[i].spec.path] = i;
  columns_->num_units = columns_->at("/commit/done").spec.num_rows;
}
ResultsFile::ResultsFile(ResultsFile&&) noexcept = default;
ResultsFile::~ResultsFile() = default;

ResultsFile::State ResultsFile::state_on_disk(const std::string& final_path) {
  if (exists(final_path)) return State::kComplete;
  if (exists(partial(final_path))) return State::kPartial;
  return State::kAbsent;
}

ResultsFile ResultsFile::create(const Communicator& world, const std::string& final_path, const ResultsSpec& spec) {
  auto columns = std::make_unique<Columns>();
  columns->final_path = final_path;
  columns->world = &world;
  const std::string path = creating(final_path);
  std::string layout;
  if (world.rank() == 0) {
    MAGISTER_CHECK(state_on_disk(final_path) == State::kAbsent, ExitCode::kInputOutput,
                   "{}: results appeared while the run was planned (another run works here); look at it first",
                   printable(final_path));
    ::unlink(path.c_str());  // of a run that died while creating: nothing was computed yet
    fail_point("results.create.begin");
    write_layout(path, spec);
    ::chmod(path.c_str(), 0640);
    fail_point("results.create.closed");
    layout = to_text(read_layout(path));
  }
  world.broadcast(layout, 0);
  columns->columns = from_text(layout);
  columns->file = PosixFile(path);
  ResultsFile file(std::move(columns));
  for (std::uint64_t i = 0; i < file.num_units(); ++i) file.columns_->pending.push_back(i);
  // Flags and checksums are zero from the start, in blocks of their own and not by the grace of a sparse file.
  if (world.rank() == 0) {
    file.write("/commit/done", 0, std::vector<std::byte>(file.num_units()));
    file.write("/commit/crc32c", 0, std::vector<std::byte>(file.num_units() * 4));
  }
  return file;
}

void ResultsFile::freeze() {
  const Communicator& world = *columns_->world;
  fail_point("results.freeze.begin");
  columns_->file.sync();
  world.barrier();
  if (world.rank() == 0) {
    fail_point("results.freeze.synced");
    rename_durably(creating(columns_->final_path), partial(columns_->final_path));
    fail_point("results.freeze.renamed");
  }
  world.barrier();
  columns_->file.set_path(partial(columns_->final_path));
}

ResultsFile ResultsFile::resume(const Communicator& world, const std::string& final_path,
                                const std::vector<std::pair<std::string, AttributeValue>>& expected) {
  auto columns = std::make_unique<Columns>();
  columns->final_path = final_path;
  columns->world = &world;
  const std::string path = partial(final_path);
  std::string layout;
  if (world.rank() == 0) {
    check_attributes(path, expected);
    const auto placed = read_layout(path);
    for (const char* name : {"/commit/unit_begin", "/commit/done", "/commit/crc32c", "/samples/offset"}) {
      check_column(placed, name, path);
    }
    layout = to_text(placed);
  }
  world.broadcast(layout, 0);
  columns->columns = from_text(layout);
  columns->file = PosixFile(path);
  ResultsFile file(std::move(columns));
  std::string done(file.num_units(), '\0');
  if (world.rank() == 0) file.read("/commit/done", 0, std::as_writable_bytes(std::span(done)));
  world.broadcast(done, 0);
  for (std::uint64_t i = 0; i < done.size(); ++i) {
    MAGISTER_CHECK(done[i] == 0 || done[i] == 1, ExitCode::kData, "{}: unit {} has the done flag {} (0 and 1 are allowed; the "
                   "file was changed); put it aside with --fresh", printable(path), i, static_cast<int>(done[i]));
    if (done[i] == 0) file.columns_->pending.push_back(i);
  }
  return file;
}

void ResultsFile::check_attributes(const std::string& path,
                                   const std::vector<std::pair<std::string, AttributeValue>>& expected) {
  const Attributes found = read_attributes(path);
  for (const auto& [name, value] : expected) {
    const auto at = std::find_if(found.begin(), found.end(), [&](const auto& entry) { return entry.first == name; });
    MAGISTER_CHECK(at != found.end() && at->second == value, ExitCode::kConfig,
                   "{}: its {} is {}, this run's is {} (it belongs to another experiment, model or data set, and nothing is "
                   "overwritten); give the run another name, or put the old file aside with --fresh", printable(path), name,
                   at == found.end() ? "absent" : printable(text_of(at->second)), printable(text_of(value)));
  }
}

void ResultsFile::write(const std::string& column_path, std::uint64_t first_row, std::span<const std::byte> data) {
  const PlacedColumn& column = columns_->at(column_path);
  const std::uint64_t row_bytes = column.row_bytes(), rows = data.size() / row_bytes;
  MAGISTER_CHECK(data.size() % row_bytes == 0 && first_row + rows <= column.spec.num_rows, ExitCode::kInternal,
                 "{}: rows {} to {} do not fit {} with {} rows (neighbours would be overwritten); report this",
                 columns_->final_path, first_row, first_row + rows, column_path, column.spec.num_rows);
  columns_->file.write_at(column.offset + first_row * row_bytes, data);
}

void ResultsFile::read(const std::string& column_path, std::uint64_t first_row, std::span<std::byte> data) const {
  const PlacedColumn& column = columns_->at(column_path);
  const std::uint64_t row_bytes = column.row_bytes(), rows = data.size() / row_bytes;
  MAGISTER_CHECK(data.size() % row_bytes == 0 && first_row + rows <= column.spec.num_rows, ExitCode::kData,
                 "{}: rows {} to {} of {} are asked for, but it has {} (the file is damaged); put it aside with --fresh",
                 columns_->final_path, first_row, first_row + rows, column_path, column.spec.num_rows);
  columns_->file.read_at(column.offset + first_row * row_bytes, data);
}

const std::vector<std::uint64_t>& ResultsFile::pending_units() const { return columns_->pending; }
std::uint64_t ResultsFile::num_units() const { return columns_->num_units; }

Unit ResultsFile::unit(std::uint64_t unit_index) const {
  const auto pair_at = [&](const char* column, std::uint64_t row) {
    std::uint64_t pair[2] = {};
    read(column, row, std::as_writable_bytes(std::span(pair)));
    MAGISTER_CHECK(pair[0] <= pair[1], ExitCode::kData, "{}: {} goes from {} back to {} at {} (the file is damaged); put it "
                   "aside with --fresh", columns_->final_path, column, pair[0], pair[1], row);
    return IndexRange{pair[0], pair[1]};
  };
  const auto one_at = [&](std::uint64_t row) {
    std::uint64_t value = 0;
    read("/samples/offset", row, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  };
  Unit unit;
  unit.index = unit_index;
  unit.samples = pair_at("/commit/unit_begin", unit_index);
  unit.rows = {one_at(unit.samples.begin), one_at(unit.samples.end)};
  MAGISTER_CHECK(unit.rows.begin <= unit.rows.end, ExitCode::kData, "{}: unit {} has rows {} to {} (the offsets are damaged); "
                 "put the file aside with --fresh", columns_->final_path, unit_index, unit.rows.begin, unit.rows.end);
  return unit;
}

std::uint32_t ResultsFile::checksum(const Unit& unit) const {
  std::vector<std::byte> piece;
  std::uint32_t crc = 0;
  for (const auto extent : {ColumnSpec::Extent::kSamples, ColumnSpec::Extent::kRows}) {
    for (const PlacedColumn& column : columns_->columns) {
      if (column.spec.extent != extent) continue;
      const IndexRange range = extent == ColumnSpec::Extent::kSamples ? unit.samples : unit.rows;
      const std::uint64_t rows_a_piece = std::max<std::uint64_t>(1, (4 << 20) / column.row_bytes());
      for (std::uint64_t row = range.begin; row < range.end; row += rows_a_piece) {
        piece.resize(std::min(rows_a_piece, range.end - row) * column.row_bytes());
        read(column.spec.path, row, piece);
        crc = crc32c(crc, piece);
      }
    }
  }
  return crc;
}

void ResultsFile::commit(const Unit& unit) {
  fail_point("results.commit.rows_written");
  const std::uint32_t crc = checksum(unit);
  write("/commit/crc32c", unit.index, std::as_bytes(std::span(&crc, 1)));
  fail_point("results.commit.crc_written");
  columns_->file.sync_data();
  fail_point("results.commit.synced");
  const std::uint8_t done = 1;
  write("/commit/done", unit.index, std::as_bytes(std::span(&done, 1)));
  fail_point("results.commit.done_written");
}

void ResultsFile::complete(const Communicator& world) {
  columns_->file.sync();
  world.barrier();
  if (world.rank() == 0) {
    std::string done(num_units(), '\0');
    read("/commit/done", 0, std::as_writable_bytes(std::span(done)));
    const auto hole = done.find_first_not_of('\1');
    MAGISTER_CHECK(hole == std::string::npos, ExitCode::kInternal, "{}: unit {} is not committed (the file is not complete); "
                   "run the same command again", columns_->final_path, hole);
    fail_point("results.complete.begin");
    write_complete(partial(columns_->final_path));
    fail_point("results.complete.attribute_written");
    columns_->file.sync();
    fail_point("results.complete.synced");
    MAGISTER_CHECK(!exists(columns_->final_path), ExitCode::kInputOutput,
                   "{}: appeared during the run (a complete file is never overwritten); move one of the two away",
                   printable(columns_->final_path));
    rename_durably(partial(columns_->final_path), columns_->final_path);
    fail_point("results.complete.renamed");
  }
  world.barrier();
}

}  // namespace magister
