// `merge`: the parts of an array job become one file, unit by unit, each checksum verified on the way.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "io/results_reader.h"
#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/io/results_tools.h"

namespace magister {
namespace {

// Attributes that belong to a part and not to the whole.
bool of_the_part(const std::string& name) {
  for (const char* own : {"experiment", "config_sha256", "plan_sha256", "num_samples", "num_tokens", "slice_begin",
                          "slice_end", "complete", "columns", "default"}) {
    if (name == own) return true;
  }
  return false;
}

// The experiment with its slice set to the whole: equal for all parts of one array job.
std::string whole_experiment(const std::string& yaml) {
  std::string out;
  for (std::size_t begin = 0; begin < yaml.size();) {
    const std::size_t end = std::min(yaml.find('\n', begin), yaml.size() - 1) + 1;
    std::string line = yaml.substr(begin, end - begin);
    const std::size_t first = line.find_first_not_of(" -");
    if (first != std::string::npos && line.compare(first, 6, "slice:") == 0) line = line.substr(0, first) + "slice: 0/1\n";
    out += line;
    begin = end;
  }
  return out;
}

void check_same(const ResultsReader& first, const ResultsReader& part) {
  MAGISTER_CHECK(part.complete(), ExitCode::kData, "{}: is not complete (its rows would be missing); finish its run first",
                 printable(part.path()));
  MAGISTER_CHECK(whole_experiment(first.text("experiment")) == whole_experiment(part.text("experiment")), ExitCode::kData,
                 "{}: its experiment differs from that of {} (rows of different runs would be mixed); merge the parts of one "
                 "array job", printable(part.path()), printable(first.path()));
  for (const auto& [name, value] : first.attributes()) {
    if (of_the_part(name)) continue;
    const AttributeValue* other = part.find_attribute(name);
    MAGISTER_CHECK(other != nullptr && *other == value, ExitCode::kData, "{}: its {} differs from that of {} (rows of "
                   "different runs would be mixed); merge the parts of one array job", printable(part.path()), name,
                   printable(first.path()));
  }
  for (const PlacedColumn& column : first.columns()) {
    const PlacedColumn& other = part.at(column.spec.path);
    const bool same_width = other.spec.width == column.spec.width || column.spec.type == ColumnType::kUtf8;
    MAGISTER_CHECK(other.spec.type == column.spec.type && same_width, ExitCode::kData, "{}: dataset {} has another type than in "
                   "{} (they cannot be joined); merge the parts of one array job", printable(part.path()), column.spec.path,
                   printable(first.path()));
  }
}

// Slices in order, without gap or overlap, from the first record to the last.
void check_cover(const std::vector<ResultsReader>& parts) {
  std::uint64_t next = 0;
  for (const ResultsReader& part : parts) {
    const std::uint64_t begin = part.number("slice_begin"), end = part.number("slice_end");
    MAGISTER_CHECK(begin == next, ExitCode::kData, "{}: holds records {} to {}, but {} comes next ({}); give every part of the "
                   "array job once", printable(part.path()), begin, end, next,
                   begin < next ? "records would be doubled" : "records would be missing");
    next = end;
  }
  const std::uint64_t all = parts.front().number("source_records");
  MAGISTER_CHECK(next == all, ExitCode::kData, "the parts end at record {} of {} (records would be missing); give every part of "
                 "the array job once", next, all);
}

ResultsSpec spec_of_whole(const std::vector<ResultsReader>& parts) {
  const ResultsReader& first = parts.front();
  ResultsSpec spec;
  std::uint64_t num_samples = 0, num_tokens = 0, key_bytes = 1;
  std::string plans;
  for (const ResultsReader& part : parts) {
    num_samples += part.number("num_samples");
    num_tokens += part.number("num_tokens");
    spec.num_units += part.num_units();
    key_bytes = std::max(key_bytes, part.at("/samples/key").spec.width);
    plans += part.text("plan_sha256") + "\n";
  }
  for (const PlacedColumn& placed : first.columns()) {
    if (placed.spec.path.starts_with("/commit/")) continue;
    ColumnSpec column = placed.spec;
    if (column.extent == ColumnSpec::Extent::kRows) column.num_rows = num_tokens;
    if (column.extent == ColumnSpec::Extent::kSamples) column.num_rows = num_samples;
    if (column.path == "/samples/offset") column.num_rows = num_samples + 1;
    if (column.type == ColumnType::kUtf8) column.width = key_bytes;
    spec.columns.push_back(std::move(column));
  }
  const std::string experiment = whole_experiment(first.text("experiment"));
  // The order that a run writes them in.
  for (const char* name : {"format", "format_version", "software", "software_version"}) {
    spec.attributes.emplace_back(name, *first.find_attribute(name));
  }
  spec.attributes.emplace_back("experiment", experiment);
  spec.attributes.emplace_back("config_sha256", sha256_hex(experiment));
  for (const char* name : {"model_sha256", "tokenizer_sha256", "dataset_sha256", "dtype", "tp_size", "source_records"}) {
    spec.attributes.emplace_back(name, *first.find_attribute(name));
  }
  spec.attributes.emplace_back("slice_begin", std::uint64_t{0});
  spec.attributes.emplace_back("slice_end", first.number("source_records"));
  spec.attributes.emplace_back("plan_sha256", sha256_hex(plans));
  spec.attributes.emplace_back("num_samples", num_samples);
  spec.attributes.emplace_back("num_tokens", num_tokens);
  spec.default_plot_column = first.find("/teacher/entropy") != nullptr ? "/teacher/entropy" : "";
  return spec;
}

// Where a part's first sample, row and unit go.
struct Shift {
  std::uint64_t samples = 0, rows = 0, units = 0;
};

void copy_range(const ResultsReader& part, const PlacedColumn& column, IndexRange range, std::uint64_t shift,
                std::uint64_t out_row_bytes, ResultsFile& out) {
  const std::uint64_t row_bytes = column.row_bytes(), piece = std::max<std::uint64_t>(1, (4 << 20) / row_bytes);
  for (std::uint64_t row = range.begin; row < range.end; row += piece) {
    const std::uint64_t end = std::min(row + piece, range.end);
    std::vector<std::byte> bytes = part.read_bytes(column, row, end);
    if (out_row_bytes != row_bytes) {  // keys of another width: padded with NUL
      std::vector<std::byte> wide((end - row) * out_row_bytes);
      for (std::uint64_t i = 0; i < end - row; ++i) {
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(i * row_bytes), row_bytes,
                    wide.begin() + static_cast<std::ptrdiff_t>(i * out_row_bytes));
      }
      bytes = std::move(wide);
    }
    out.write(column.spec.path, shift + row, bytes);
  }
}

void copy_borders(const ResultsReader& part, const Shift& shift, ResultsFile& out) {
  const auto shifted = [&](const char* column, std::uint64_t count, std::uint64_t at, std::uint64_t by) {
    constexpr std::uint64_t kPiece = 1 << 18;
    for (std::uint64_t begin = 0; begin < count; begin += kPiece) {
      auto values = part.read<std::uint64_t>(column, begin, std::min(begin + kPiece, count));
      for (std::uint64_t& value : values) value += by;
      out.write(column, at + begin, std::as_bytes(std::span(values)));
    }
  };
  // One more than there are: the next part, or nobody, overwrites the last border with the same number.
  shifted("/samples/offset", part.number("num_samples") + 1, shift.samples, shift.rows);
  shifted("/commit/unit_begin", part.num_units() + 1, shift.units, shift.samples);
}

void copy_units(const ResultsReader& part, const Shift& shift, std::uint64_t key_bytes, ResultsFile& out) {
  for (std::uint64_t u = 0; u < part.num_units(); ++u) {
    const Unit unit = part.unit(u);
    MAGISTER_CHECK(part.checksum(unit) == part.read<std::uint32_t>("/commit/crc32c", u, u + 1)[0], ExitCode::kData,
                   "{}: unit {} does not match its checksum (its bytes were changed); compute this part again",
                   printable(part.path()), u);
    for (const PlacedColumn& column : part.columns()) {
      const std::uint64_t width = column.spec.type == ColumnType::kUtf8 ? key_bytes : column.row_bytes();
      if (column.spec.extent == ColumnSpec::Extent::kSamples) copy_range(part, column, unit.samples, shift.samples, width, out);
      if (column.spec.extent == ColumnSpec::Extent::kRows) copy_range(part, column, unit.rows, shift.rows, width, out);
    }
    out.commit(out.unit(shift.units + u));
  }
}

}  // namespace

void merge_results(const std::string& out_path, const std::vector<std::string>& part_paths) {
  MAGISTER_CHECK(!part_paths.empty(), ExitCode::kUsage, "merge needs at least one part (there is nothing to join); give the "
                 "parts after the output");
  std::vector<ResultsReader> parts;
  for (const std::string& path : part_paths) parts.emplace_back(path);
  for (const ResultsReader& part : parts) check_same(parts.front(), part);
  std::stable_sort(parts.begin(), parts.end(), [](const ResultsReader& a, const ResultsReader& b) {
    return std::pair(a.number("slice_begin"), a.number("slice_end")) < std::pair(b.number("slice_begin"), b.number("slice_end"));
  });
  check_cover(parts);
  MAGISTER_CHECK(ResultsFile::state_on_disk(out_path) == ResultsFile::State::kAbsent, ExitCode::kInputOutput,
                 "{}: is there already, complete or partial (nothing is overwritten); give another name", printable(out_path));
  const Communicator alone;
  const ResultsLock lock(alone, out_path);
  const ResultsSpec spec = spec_of_whole(parts);
  std::uint64_t key_bytes = 1;
  for (const ColumnSpec& column : spec.columns) {
    if (column.type == ColumnType::kUtf8) key_bytes = column.width;
  }
  try {
    ResultsFile out = ResultsFile::create(alone, out_path, spec);
    Shift shift;
    for (const ResultsReader& part : parts) {
      copy_borders(part, shift, out);
      copy_units(part, shift, key_bytes, out);
      shift = {shift.samples + part.number("num_samples"), shift.rows + part.number("num_tokens"),
               shift.units + part.num_units()};
    }
    out.freeze();
    out.complete(alone);
  } catch (...) {
    // A merge is repeated from its parts: nothing half-written stays.
    ::unlink((out_path + ".creating").c_str());
    ::unlink((out_path + ".partial").c_str());
    throw;
  }
}

}  // namespace magister
