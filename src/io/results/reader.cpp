// Opens files by name, and reads attributes by type.
#include "magister/io/results/reader.h"

#include <immintrin.h>

#include <cstring>
#include <filesystem>

#include "io/results/columns.h"
#include "io/results/text_heap.h"
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

struct ResultsReader::Parts {
  explicit Parts(const std::string& path)
      : path(path),
        attributes(read_attributes(path)),
        columns(PosixFile(path, PosixFile::Access::kRead), read_layout(path)) {}
  std::string path;
  Attributes attributes;
  ResultsColumns columns;
};

ResultsReader::ResultsReader(const std::string& path) : parts_(std::make_unique<Parts>(path)) {
  const std::vector<std::string> faults = missing_columns(parts_->columns);
  MAGISTER_CHECK(faults.empty(), ExitCode::kData, "{}: {} (it is not a results file of magister); use another file",
                 printable(path), faults.front());
}
ResultsReader::~ResultsReader() = default;
ResultsReader::ResultsReader(ResultsReader&&) noexcept = default;
ResultsReader& ResultsReader::operator=(ResultsReader&&) noexcept = default;

const std::string& ResultsReader::path() const { return parts_->path; }
const Attributes& ResultsReader::attributes() const { return parts_->attributes; }
const ResultsColumns& ResultsReader::columns() const { return parts_->columns; }
std::uint64_t ResultsReader::num_samples() const { return parts_->columns.num_samples(); }

const AttributeValue* ResultsReader::attribute(const std::string& name) const {
  return find_attribute(parts_->attributes, name);
}

const std::string& ResultsReader::text(const std::string& name) const {
  const AttributeValue* value = attribute(name);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  MAGISTER_CHECK(text != nullptr, ExitCode::kData,
                 "{}: root attribute {} is missing or not a text (the file was changed); use "
                 "another file",
                 printable(path()), name);
  return *text;
}

std::uint64_t ResultsReader::number(const std::string& name) const {
  const AttributeValue* value = attribute(name);
  const auto* number = value == nullptr ? nullptr : std::get_if<std::uint64_t>(value);
  MAGISTER_CHECK(number != nullptr, ExitCode::kData,
                 "{}: root attribute {} is missing or not a number (the file was changed); "
                 "use another file",
                 printable(path()), name);
  return *number;
}

bool ResultsReader::complete() const {
  const AttributeValue* value = attribute("complete");
  return value != nullptr && *value == AttributeValue(std::uint8_t{1});
}

const ColumnSpec* ResultsReader::find(const std::string& column) const {
  const PlacedColumn* const found = parts_->columns.find(column);
  return found == nullptr ? nullptr : &found->spec;
}

const ColumnSpec& ResultsReader::column(const std::string& path, ColumnType type) const {
  return parts_->columns.required(path, type).spec;
}

void ResultsReader::read(const std::string& column, std::uint64_t first_row, std::span<std::byte> data) const {
  parts_->columns.read(parts_->columns.required(column), first_row, data);
}

void ResultsReader::for_each_piece(
    const std::string& column, IndexRange rows,
    const std::function<void(std::uint64_t first, std::span<const std::byte> bytes)>& visit) const {
  parts_->columns.for_each_piece(parts_->columns.required(column), rows, visit);
}

void ResultsReader::for_each_text(const std::string& column, IndexRange rows,
                                  const std::function<void(std::uint64_t row, std::string_view text)>& visit) const {
  TextHeap(parts_->columns, parts_->columns.required(column)).for_each(rows, visit);
}

ResultsTextColumn::ResultsTextColumn(const ResultsReader& file, const std::string& column)
    : heap_(std::make_unique<TextHeap>(file.columns(), file.columns().required(column))) {}
ResultsTextColumn::~ResultsTextColumn() = default;
std::string ResultsTextColumn::text(std::uint64_t row) { return heap_->text(row); }

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
