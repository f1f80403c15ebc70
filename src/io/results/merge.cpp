// `merge`: joins the parts of an array job into one file. The merged file goes through the same states and commits as a
// run's file (ResultsFile), so after a kill at any moment the same command continues.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "io/results/columns.h"
#include "io/results/foreign.h"
#include "io/results/slices.h"
#include "io/results/text_heap.h"
#include "magister/core/error.h"
#include "magister/io/crc32c.h"
#include "magister/io/results/identity.h"
#include "magister/io/results/reader.h"
#include "magister/io/results/text_heap_bytes.h"
#include "magister/io/results/tools.h"

namespace magister {
namespace {

constexpr std::uint64_t kCommitBytes = 64 << 20;  // bytes per fdatasync

// A part, and where its samples, rows and units begin in the merged file.
struct Part {
  ResultsReader file;
  std::uint64_t first_sample = 0, first_row = 0, first_unit = 0;
  std::uint64_t slice_begin = 0, slice_end = 0, num_samples = 0, num_rows = 0, num_units = 0;
};

Part open_part(const std::string& path) {
  Part part{open_foreign_results(path)};
  MAGISTER_CHECK(part.file.complete(), ExitCode::kData,
                 "{}: is not complete (its rows would be missing); finish its run first", printable(path));
  MAGISTER_CHECK(part.file.columns().has_rows(), ExitCode::kData,
                 "{}: holds the curves of a training (each slice has trained a model of its own, and models are not "
                 "joined); train on all records in one task",
                 printable(path));
  const std::vector<std::string> faults = structure_faults(part.file.columns(), part.file.attributes());
  MAGISTER_CHECK(faults.empty(), ExitCode::kData, "{}: {} (the part is damaged); compute it again", printable(path),
                 faults.empty() ? "" : faults.front());
  part.slice_begin = part.file.number("slice_begin");
  part.slice_end = part.file.number("slice_end");
  const ResultsColumns& columns = part.file.columns();
  part.num_samples = columns.num_samples();
  part.num_rows = columns.rows<std::uint64_t>("/samples/offset", part.num_samples, 1)[0];
  part.num_units = columns.num_units();
  return part;
}

// The keys that differ between the two experiments; nullopt if one cannot be read, then their hashes are compared.
std::optional<std::vector<std::string>> differing_keys_of(const ResultsReader& one, const ResultsReader& two,
                                                          const IdentitySides& sides) {
  try {
    return differing_keys(one.text("experiment"), two.text("experiment"), sides);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Slices computed by groups of different sizes come from GPUs of two kinds; the message then offers another way.
std::string other_way(const std::string& attribute) {
  return attribute == "tp_size" || attribute == "tp_sizes" || attribute == "tp_shares"
             ? ", with groups of one size, or compute all in one run with groups of several: layout.gpus_per_group: "
               "[1, 2]"
             : "";
}

// Compares every key that counts, every attribute except those of the slice, in both directions, and every dataset's
// type.
void check_same_run(const ResultsReader& first, const ResultsReader& other) {
  const IdentitySides sides{"in " + printable(first.path()), "in " + printable(other.path()), ""};
  const auto keys = differing_keys_of(first, other, sides);
  if (keys && !keys->empty())
    fail(ExitCode::kData,
         "{}: belongs to another experiment than {}: {} (rows of different runs would be mixed); merge the slices of "
         "one experiment",
         printable(other.path()), printable(first.path()), fmt::join(*keys, ", "));
  for (const auto& [one, two] : {std::pair(&first, &other), std::pair(&other, &first)}) {
    for (const auto& [name, value] : one->attributes()) {
      if (is_of_part(name) || (keys && name == "config_sha256")) continue;
      const AttributeValue* also = find_attribute(two->attributes(), name);
      const bool fits =
          also != nullptr && (*also == value || (is_digest_of_parts(name) && also->index() == value.index()));
      if (fits) continue;
      const KeysBehind in_keys =
          keys ? keys_behind(name, first.text("experiment"), other.text("experiment"), sides) : KeysBehind();
      fail(ExitCode::kData,
           "{}: {} is {}, in {} it is {}{} (rows of different runs would be mixed); merge the slices of one "
           "experiment{}",
           printable(one->path()), printable(name), shown_attribute(value), printable(two->path()),
           also == nullptr ? "absent" : shown_attribute(*also), in_keys.in_brackets(), other_way(name));
    }
  }
  const auto& ours = first.columns().all();
  const auto& theirs = other.columns().all();
  const bool same =
      std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), [](const auto& a, const auto& b) {
        return a.spec.path == b.spec.path && a.spec.type == b.spec.type && a.spec.extent == b.spec.extent &&
               (a.spec.width == b.spec.width || a.spec.type == ColumnType::kUtf8);
      });
  MAGISTER_CHECK(same, ExitCode::kData,
                 "{}: its datasets have other names or types than those of {} (they cannot be joined); "
                 "merge the slices of one experiment",
                 printable(other.path()), printable(first.path()));
}

// The last record's number for messages, counted from 0 as source_index is.
std::uint64_t last_record(const Part& part) { return std::max(part.slice_end, part.slice_begin + 1) - 1; }

// Requires that the first and last sample are those of the part's slice.
void check_slice(const Part& part) {
  if (part.num_samples == 0 && part.slice_begin == part.slice_end) return;
  const ResultsColumns& columns = part.file.columns();
  part.file.column("/samples/source_index", ColumnType::kU64);
  const bool covers =
      part.num_samples > 0 && part.slice_begin < part.slice_end &&
      columns.rows<std::uint64_t>("/samples/source_index", 0, 1)[0] == part.slice_begin &&
      columns.rows<std::uint64_t>("/samples/source_index", part.num_samples - 1, 1)[0] + 1 == part.slice_end;
  MAGISTER_CHECK(covers, ExitCode::kData,
                 "{}: its samples are not those of its records {} to {} (the part is damaged); compute it again",
                 printable(part.file.path()), part.slice_begin, last_record(part));
}

// Requires that the slices follow each other from the first record to the last; sets the parts' places in the merged
// file.
void check_cover(std::vector<Part>& parts) {
  std::uint64_t next = 0, samples = 0, rows = 0, units = 0;
  for (Part& part : parts) {
    MAGISTER_CHECK(part.slice_begin == next, ExitCode::kData,
                   "{}: holds records {} to {}, but record {} comes next ({}); give every slice once",
                   printable(part.file.path()), part.slice_begin, last_record(part), next,
                   part.slice_begin < next ? "records would be there twice" : "records would be missing");
    check_slice(part);
    next = part.slice_end;
    part.first_sample = std::exchange(samples, samples + part.num_samples);
    part.first_row = std::exchange(rows, rows + part.num_rows);
    part.first_unit = std::exchange(units, units + part.num_units);
  }
  const std::uint64_t all = parts.front().file.number("source_records");
  MAGISTER_CHECK(next == all, ExitCode::kData,
                 "{}: ends before record {} of {} (counted from 0), and no part continues there (records would be "
                 "missing); give every slice once",
                 printable(parts.back().file.path()), next, all);
}

// The experiment without its slice, as a run over all records would have it.
std::string without_slice(const std::string& yaml) {
  constexpr std::string_view kOfTask = "    slice:";  // a key of a task; deeper keys of this name are others
  const std::size_t tasks = yaml.find("\ntasks:\n");  // before it, a text of a model may look the same
  if (tasks == std::string::npos) return yaml;
  std::string out = yaml.substr(0, tasks + 1);
  for (std::size_t begin = tasks + 1; begin < yaml.size();) {
    const std::size_t end = std::min(yaml.find('\n', begin), yaml.size() - 1) + 1;
    if (yaml.compare(begin, kOfTask.size(), kOfTask) != 0) out += yaml.substr(begin, end - begin);
    begin = end;
  }
  return out;
}

// The hash that this build computes, whichever build has written the parts.
std::string whole_config_sha256(const ResultsReader& first) {
  try {
    return config_sha256(first.text("experiment"));
  } catch (const Error&) {  // all parts have the same hash
    return first.text("config_sha256");
  }
}

// HDF5 writes strings of any length, so this precedes freezing the metadata: after a kill before that, the merge starts
// again.
void copy_texts(const std::vector<Part>& parts, ResultsFile& out) {
  constexpr std::size_t kRows = 4096, kBytes = 16 << 20;
  for (const PlacedColumn& first : parts.front().file.columns().all()) {
    if (first.spec.type != ColumnType::kText) continue;
    const std::string& path = first.spec.path;
    std::uint64_t row = 0;
    std::size_t bytes = 0;
    std::vector<std::string> block;
    const auto flush = [&] {
      out.write_texts(path, row, block);
      row += block.size();
      block.clear();
      bytes = 0;
    };
    for (const Part& part : parts) {
      const PlacedColumn& column = part.file.columns().at(path);
      TextHeap(part.file.columns(), column)
          .for_each({0, column.spec.num_rows}, [&](std::uint64_t at, std::string_view text) {
            MAGISTER_CHECK(text.find('\0') == std::string_view::npos, ExitCode::kData,
                           "{}: row {} of {} holds a NUL (the part is damaged); compute it again",
                           printable(part.file.path()), at, printable(path));
            block.emplace_back(text);
            bytes += text.size();
            if (block.size() == kRows || bytes >= kBytes) flush();
          });
    }
    flush();
  }
}

// Bytes that the texts of all parts need in the merged file's heap.
std::uint64_t heap_bytes(const std::vector<Part>& parts, const std::string& path) {
  TextHeapBytes bytes;
  for (const Part& part : parts) {
    const PlacedColumn& column = part.file.columns().at(path);
    TextHeap(part.file.columns(), column)
        .for_each({0, column.spec.num_rows}, [&](std::uint64_t, std::string_view text) { bytes.add(text.size()); });
  }
  return bytes.bytes();
}

ResultsSpec spec_of_whole(const std::vector<Part>& parts) {
  const ResultsReader& first = parts.front().file;
  const Part& last = parts.back();
  const std::uint64_t num_samples = last.first_sample + last.num_samples, num_rows = last.first_row + last.num_rows;
  ResultsSpec spec;
  spec.num_units = last.first_unit + last.num_units;
  spec.checks_inputs = first.find(kInputChecksums) != nullptr;
  spec.default_plot_column = read_default_plot(first.path());
  for (const PlacedColumn& placed : first.columns().all()) {
    ColumnSpec column = placed.spec;
    if (column.path.starts_with("/commit/")) continue;
    MAGISTER_CHECK(column.extent != ColumnSpec::Extent::kFixed || column.path == "/samples/offset", ExitCode::kData,
                   "{}: dataset {} belongs to no sample (this program does not know how to join it); use a newer one",
                   printable(first.path()), printable(column.path));
    column.num_rows = column.extent == ColumnSpec::Extent::kRows ? num_rows : num_samples;
    if (column.path == "/samples/offset") ++column.num_rows;
    if (column.type == ColumnType::kText) column.heap_bytes = heap_bytes(parts, column.path);
    for (const Part& part : parts)
      column.width = std::max(column.width, part.file.columns().at(column.path).spec.width);
    spec.columns.push_back(std::move(column));
  }
  for (const auto& entry : first.attributes()) {
    const std::string& name = entry.first;
    if (is_widest_of_parts(name)) {
      std::uint64_t most = 0;
      for (const Part& part : parts) most = std::max(most, part.file.number(name));
      spec.attributes.emplace_back(name, most);
    }
    if (is_of_part(name)) continue;
    spec.attributes.push_back(entry);
    if (name == "config_sha256") spec.attributes.back().second = whole_config_sha256(first);
    if (!is_digest_of_parts(name)) continue;
    std::vector<std::string> digests;
    digests.reserve(parts.size());
    for (const Part& part : parts) digests.push_back(part.file.text(name));
    spec.attributes.back().second = digest_of_parts(name, digests);
  }
  spec.attributes.emplace_back("experiment", without_slice(first.text("experiment")));
  spec.attributes.emplace_back("num_samples", num_samples);
  spec.attributes.emplace_back("num_tokens", num_rows);
  spec.attributes.emplace_back("slice_begin", std::uint64_t{0});
  spec.attributes.emplace_back("slice_end", first.number("source_records"));
  return spec;
}

void copy_borders(const Part& part, ResultsFile& out) {
  const auto shifted = [&](const char* path, std::uint64_t at, std::uint64_t by) {
    const PlacedColumn& column = part.file.columns().at(path);
    part.file.columns().for_each_piece(
        column, {0, column.spec.num_rows}, [&](std::uint64_t row, std::span<const std::byte> bytes) {
          std::vector<std::uint64_t> values(bytes.size() / 8);
          std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(values)).begin());
          for (std::uint64_t& value : values) value += by;
          out.write(path, at + row, std::as_bytes(std::span(values)));
        });
  };
  // Both include the end of the last entry: the next part begins with the same number.
  shifted("/samples/offset", part.first_sample, part.first_row);
  shifted("/commit/unit_begin", part.first_unit, part.first_sample);
}

// Widens strings to new_width bytes, padded with NUL.
std::vector<std::byte> widened(std::span<const std::byte> rows, std::uint64_t width, std::uint64_t new_width) {
  std::vector<std::byte> wide(rows.size() / width * new_width);
  for (std::size_t row = 0; row * width < rows.size(); ++row) {
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row * width), width,
                wide.begin() + static_cast<std::ptrdiff_t>(row * new_width));
  }
  return wide;
}

// Copies some rows of a part to their place; calls seen(bytes) for every piece as it is in the part.
template <typename Seen>
void copy_rows(const Part& part, const PlacedColumn& column, IndexRange rows, const ResultsSpec& spec, ResultsFile& out,
               const Seen& seen) {
  const auto whole = std::find_if(spec.columns.begin(), spec.columns.end(),
                                  [&](const ColumnSpec& other) { return other.path == column.spec.path; });
  const std::uint64_t width = column.spec.width, new_width = whole->width,
                      shift = whole->extent == ColumnSpec::Extent::kSamples ? part.first_sample : part.first_row;
  part.file.columns().for_each_piece(column, rows, [&](std::uint64_t row, std::span<const std::byte> bytes) {
    seen(bytes);
    if (width == new_width) return out.write(column.spec.path, shift + row, bytes);
    out.write(column.spec.path, shift + row, widened(bytes, width, new_width));
  });
}

// Copies the columns that are written before the metadata is frozen, as in a run's own file. They are verified when
// their units are copied.
void copy_inputs(const Part& part, const ResultsSpec& spec, ResultsFile& out) {
  for (const PlacedColumn* column : part.file.columns().unit_columns()) {
    if (is_input(column->spec))
      copy_rows(part, *column, {0, column->spec.num_rows}, spec, out, [](std::span<const std::byte>) {});
  }
}

// Copies one unit of a part to its place. The checksum covers the same bytes that are copied. Returns their number.
std::uint64_t copy_unit(const Part& part, std::uint64_t index, const ResultsSpec& spec, ResultsFile& out) {
  const ResultsColumns& columns = part.file.columns();
  const Unit unit = columns.unit(index);
  std::uint32_t crc = 0;
  std::uint64_t num_bytes = 0;
  for (const PlacedColumn* column : columns.unit_columns()) {
    const IndexRange rows = ResultsColumns::extent_in(unit, *column);
    if (column->spec.type == ColumnType::kText || (spec.checks_inputs && is_input(column->spec))) {
      crc = columns.checksum(crc, *column, rows);  // copied before the metadata was frozen
      continue;
    }
    copy_rows(part, *column, rows, spec, out, [&](std::span<const std::byte> bytes) {
      crc = crc32c(crc, bytes);
      num_bytes += bytes.size();
    });
  }
  const std::uint32_t stored = columns.rows<std::uint32_t>("/commit/crc32c", index, 1)[0];
  MAGISTER_CHECK(
      crc == stored, ExitCode::kData,
      "{}: the bytes of unit {} have crc32c {:08x}, not {:08x} as when it was committed (the part is damaged); "
      "compute it again",
      printable(part.file.path()), index, crc, stored);
  return num_bytes;
}

void copy_pending(const std::vector<Part>& parts, const ResultsSpec& spec, ResultsFile& out) {
  std::vector<Unit> batch;
  std::uint64_t batch_bytes = 0;
  const auto commit = [&] {
    if (!batch.empty()) out.commit(batch);
    batch.clear();
    batch_bytes = 0;
  };
  auto part = parts.begin();
  for (const std::uint64_t index : out.pending_units()) {
    while (index >= part->first_unit + part->num_units) ++part;
    batch_bytes += copy_unit(*part, index - part->first_unit, spec, out);
    batch.push_back(out.unit(index));
    if (batch_bytes >= kCommitBytes) commit();
  }
  commit();
}

ResultsFile create_whole(const Communicator& alone, const std::string& path, const ResultsSpec& spec,
                         const std::vector<Part>& parts) {
  ResultsFile out = ResultsFile::create(alone, path, spec);
  for (const Part& part : parts) {
    copy_borders(part, out);
    if (spec.checks_inputs) copy_inputs(part, spec, out);
  }
  copy_texts(parts, out);
  out.freeze();
  return out;
}

}  // namespace

void merge_results(const std::string& out_path, const std::vector<std::string>& part_paths) {
  MAGISTER_CHECK(!part_paths.empty(), ExitCode::kUsage, "no part (there is nothing to join); give the parts after {}",
                 printable(out_path));
  std::vector<Part> parts;
  parts.reserve(part_paths.size());
  for (const std::string& path : part_paths) parts.push_back(open_part(path));
  for (const Part& part : parts) check_same_run(parts.front().file, part.file);
  // The order of the parts given does not matter. Of parts with one slice_begin, all but the last are empty.
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::pair(a.slice_begin, a.slice_end) < std::pair(b.slice_begin, b.slice_end);
  });
  check_cover(parts);
  const ResultsSpec spec = spec_of_whole(parts);
  const Communicator alone;
  const ResultsLock lock(alone, out_path);
  const ResultsFile::State state = ResultsFile::state_on_disk(out_path);
  MAGISTER_CHECK(state != ResultsFile::State::kComplete, ExitCode::kInputOutput,
                 "{}: exists (nothing is overwritten); give another name or move it away", printable(out_path));
  ResultsFile out = state == ResultsFile::State::kPartial ? ResultsFile::resume(alone, out_path, spec.attributes)
                                                          : create_whole(alone, out_path, spec, parts);
  try {
    copy_pending(parts, spec, out);
  } catch (const Error& error) {
    // A damaged part must be computed again, and then the merged file is another one, so it is removed. After a full
    // disk the same command continues.
    if (error.code() == ExitCode::kData) ::unlink((out_path + ".partial").c_str());
    throw;
  }
  out.complete(alone);
}

}  // namespace magister
