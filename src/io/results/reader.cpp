// Opening by name, and attributes by type.
#include "io/results/reader.h"

#include <immintrin.h>

#include <cstring>
#include <filesystem>

#include "magister/core/error.h"
#include "magister/io/results/tools.h"

namespace magister {

std::string existing_results_path(const std::string& path) {
  std::error_code ignored;
  const std::string partial = path + ".partial";
  return !std::filesystem::exists(path, ignored) && std::filesystem::exists(partial, ignored) ? partial : path;
}

const AttributeValue* find_attribute(const Attributes& attributes, const std::string& name) {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

ResultsReader::ResultsReader(const std::string& path)
    : path_(path),
      attributes_(read_attributes(path)),
      columns_(PosixFile(path, PosixFile::Access::kRead), read_layout(path)) {
  const std::vector<std::string> faults = missing_columns(columns_);
  MAGISTER_CHECK(faults.empty(), ExitCode::kData, "{}: {} (it is not a results file of magister); use another file",
                 printable(path_), faults.front());
}

const std::string& ResultsReader::text(const std::string& name) const {
  const AttributeValue* value = find_attribute(attributes_, name);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  MAGISTER_CHECK(text != nullptr, ExitCode::kData,
                 "{}: root attribute {} is missing or no text (the file was changed); use "
                 "another file",
                 printable(path_), name);
  return *text;
}

std::uint64_t ResultsReader::number(const std::string& name) const {
  const AttributeValue* value = find_attribute(attributes_, name);
  const auto* number = value == nullptr ? nullptr : std::get_if<std::uint64_t>(value);
  MAGISTER_CHECK(number != nullptr, ExitCode::kData,
                 "{}: root attribute {} is missing or no number (the file was changed); "
                 "use another file",
                 printable(path_), name);
  return *number;
}

bool ResultsReader::complete() const {
  const AttributeValue* value = find_attribute(attributes_, "complete");
  return value != nullptr && *value == AttributeValue(std::uint8_t{1});
}

const PlacedColumn& ResultsReader::column(const std::string& path, ColumnType type) const {
  const PlacedColumn* column = columns_.find(path);
  MAGISTER_CHECK(column != nullptr && column->spec.type == type, ExitCode::kData,
                 "{}: dataset {} is missing or of another "
                 "type (the file was changed or is of another task); use another file",
                 printable(path_), path);
  return *column;
}

void to_floats(ColumnType type, std::span<const std::byte> bytes, std::vector<float>& values) {
  values.resize(bytes.size() / size_of(type));
  if (type == ColumnType::kF32) {
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes.data() + 2 * i, sizeof half);
    values[i] = _cvtsh_ss(half);
  }
}

}  // namespace magister
