// Reading by column; every range is checked against the dataset before a byte is asked for.
#include "io/results_reader.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "magister/core/error.h"
#include "magister/io/crc32c.h"

namespace magister {
namespace {

std::string existing(const std::string& path) {
  MAGISTER_CHECK(std::filesystem::exists(path), ExitCode::kInputOutput, "{}: there is no such file (nothing to read); check "
                 "the path", printable(path));
  MAGISTER_CHECK(std::filesystem::is_regular_file(path), ExitCode::kInputOutput, "{}: is no regular file (a results file is); "
                 "give a file", printable(path));
  return path;
}

}  // namespace

ResultsReader::ResultsReader(const std::string& path)
    : path_(existing(path)), attributes_(read_attributes(path)), columns_(read_layout(path)),
      file_(path, PosixFile::Access::kRead) {}

const AttributeValue* ResultsReader::find_attribute(const std::string& name) const {
  for (const auto& [key, value] : attributes_) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string ResultsReader::text(const std::string& name) const {
  const AttributeValue* value = find_attribute(name);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  MAGISTER_CHECK(text != nullptr, ExitCode::kData, "{}: root attribute {} is missing or no text (the file was changed); use "
                 "another file", printable(path_), name);
  return *text;
}

std::uint64_t ResultsReader::number(const std::string& name) const {
  const AttributeValue* value = find_attribute(name);
  const auto* number = value == nullptr ? nullptr : std::get_if<std::uint64_t>(value);
  MAGISTER_CHECK(number != nullptr, ExitCode::kData, "{}: root attribute {} is missing or no number (the file was changed); "
                 "use another file", printable(path_), name);
  return *number;
}

bool ResultsReader::complete() const {
  const AttributeValue* value = find_attribute("complete");
  return value != nullptr && std::holds_alternative<std::uint8_t>(*value) && std::get<std::uint8_t>(*value) == 1;
}

const PlacedColumn* ResultsReader::find(const std::string& column) const {
  for (const PlacedColumn& placed : columns_) {
    if (placed.spec.path == column) return &placed;
  }
  return nullptr;
}

const PlacedColumn& ResultsReader::at(const std::string& column) const {
  const PlacedColumn* placed = find(column);
  MAGISTER_CHECK(placed != nullptr, ExitCode::kData, "{}: dataset {} is missing (the file was changed or is of another task); "
                 "use another file", printable(path_), column);
  return *placed;
}

void ResultsReader::check_type(const PlacedColumn& column, std::size_t element_bytes) const {
  MAGISTER_CHECK(size_of(column.spec.type) == element_bytes, ExitCode::kData, "{}: dataset {} has elements of {} bytes, not {} "
                 "(the file was changed); use another file", printable(path_), column.spec.path, size_of(column.spec.type),
                 element_bytes);
}

void ResultsReader::read_into(const PlacedColumn& column, std::uint64_t begin, std::uint64_t end,
                              std::span<std::byte> out) const {
  MAGISTER_CHECK(begin <= end && end <= column.spec.num_rows, ExitCode::kData, "{}: rows {} to {} of {} are needed, but it has "
                 "{} (the file was changed); use another file", printable(path_), begin, end, column.spec.path,
                 column.spec.num_rows);
  file_.read_at(column.offset + begin * column.row_bytes(), out);
}

std::vector<std::byte> ResultsReader::read_bytes(const PlacedColumn& column, std::uint64_t begin, std::uint64_t end) const {
  MAGISTER_CHECK(begin <= end && end <= column.spec.num_rows, ExitCode::kData, "{}: rows {} to {} of {} are needed, but it has "
                 "{} (the file was changed); use another file", printable(path_), begin, end, column.spec.path,
                 column.spec.num_rows);
  std::vector<std::byte> bytes((end - begin) * column.row_bytes());
  read_into(column, begin, end, bytes);
  return bytes;
}

std::vector<float> ResultsReader::read_logprobs(std::uint64_t begin, std::uint64_t end) const {
  const PlacedColumn& column = at("/teacher/top_logprob");
  if (column.spec.type == ColumnType::kF32) return read<float>(column.spec.path, begin, end);
  const auto halves = read<std::uint16_t>(column.spec.path, begin, end);
  std::vector<float> values(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) values[i] = c10::detail::fp16_ieee_to_fp32_value(halves[i]);
  return values;
}

Unit ResultsReader::unit(std::uint64_t index) const {
  const auto samples = read<std::uint64_t>("/commit/unit_begin", index, index + 2);
  const std::uint64_t num_samples = at("/samples/offset").spec.num_rows - 1;
  MAGISTER_CHECK(samples[0] <= samples[1] && samples[1] <= num_samples, ExitCode::kData, "{}: unit {} has samples {} to {} of {} "
                 "(the file was changed); use another file", printable(path_), index, samples[0], samples[1], num_samples);
  const std::uint64_t begin = read<std::uint64_t>("/samples/offset", samples[0], samples[0] + 1)[0];
  const std::uint64_t end = read<std::uint64_t>("/samples/offset", samples[1], samples[1] + 1)[0];
  MAGISTER_CHECK(begin <= end && end <= at("/tokens/id").spec.num_rows, ExitCode::kData, "{}: unit {} has rows {} to {} of {} "
                 "(the offsets are damaged); use another file", printable(path_), index, begin, end,
                 at("/tokens/id").spec.num_rows);
  return {index, {samples[0], samples[1]}, {begin, end}};
}

std::uint32_t ResultsReader::checksum(const Unit& unit) const {
  std::uint32_t crc = 0;
  for (const auto extent : {ColumnSpec::Extent::kSamples, ColumnSpec::Extent::kRows}) {
    for (const PlacedColumn& column : columns_) {
      if (column.spec.extent != extent) continue;
      const IndexRange range = extent == ColumnSpec::Extent::kSamples ? unit.samples : unit.rows;
      const std::uint64_t piece = std::max<std::uint64_t>(1, (4 << 20) / column.row_bytes());
      for (std::uint64_t row = range.begin; row < range.end; row += piece) {
        crc = crc32c(crc, read_bytes(column, row, std::min(row + piece, range.end)));
      }
    }
  }
  return crc;
}

}  // namespace magister
