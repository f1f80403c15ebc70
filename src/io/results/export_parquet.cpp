// `export --to parquet`: one row per sample, row groups of about 32 MiB, through the plug-in of Arrow's library. Names
// of tokens: TRL's input_ids and assistant_masks; DistillKit reads input_ids, too.
#include <algorithm>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "io/dataset/arrow_plugin.h"
#include "io/results/columns.h"
#include "io/results/export_names.h"
#include "io/results/text_heap.h"
#include "magister/core/error.h"
#include "magister/io/results/export.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

constexpr std::uint64_t kGroupBytes = 32 << 20;

std::string exported_name(const std::string& path, const ExportedColumns& exported) {
  static constexpr TableName kOfTokens[] = {{"/tokens/id", "input_ids"}, {"/tokens/assistant", "assistant_masks"}};
  for (const std::span<const TableName> names : {std::span<const TableName>(kOfTokens), exported.parquet_names}) {
    for (const auto& [ours, theirs] : names) {
      if (path == ours) return theirs;
    }
  }
  return column_name(path);
}

bool is_text(ColumnType type) { return type == ColumnType::kUtf8 || type == ColumnType::kText; }

ArrowColumn described(ColumnSpec spec, const std::optional<DecodedColumn>& decoded, const ExportedColumns& exported) {
  if (decoded) {
    spec.path = decoded->path;
    spec.type = ColumnType::kI32;
    spec.width = decoded->width;
  }
  ArrowColumn column{exported_name(spec.path, exported), ArrowColumn::Type::kText, ArrowColumn::Shape::kValue,
                     spec.width};
  const bool of_rows = spec.extent == ColumnSpec::Extent::kRows;
  switch (spec.type) {
    case ColumnType::kU8:
      column.type = ArrowColumn::Type::kU8;
      break;
    case ColumnType::kI32:
      column.type = ArrowColumn::Type::kI32;
      break;
    case ColumnType::kU32:
      column.type = ArrowColumn::Type::kU32;
      break;
    case ColumnType::kU64:
      column.type = ArrowColumn::Type::kU64;
      break;
    case ColumnType::kF32:
    case ColumnType::kF16:
      column.type = ArrowColumn::Type::kF32;
      break;
    case ColumnType::kUtf8:
    case ColumnType::kText:
      MAGISTER_CHECK(!of_rows, ExitCode::kData,
                     "dataset {} has a text for every token (no task writes such a column); use another file",
                     printable(spec.path));
      return column;
  }
  if (of_rows) column.shape = spec.width > 0 ? ArrowColumn::Shape::kListOfLists : ArrowColumn::Shape::kList;
  if (!of_rows && spec.width > 0) column.shape = ArrowColumn::Shape::kList;
  return column;
}

class ParquetExport {
 public:
  ParquetExport(const ResultsReader& file, const ExportedColumns& exported, const std::string& out)
      : file_(file),
        exported_(exported),
        columns_(file.columns()),
        out_(out),
        target_(out, WholeFile::Existing::kRefused) {
    add(columns_.required("/samples/key", ColumnType::kUtf8));
    add(columns_.required("/samples/source_index", ColumnType::kU64));
    if (columns_.has_rows()) add(columns_.required("/tokens/id", ColumnType::kI32));
    for (const PlacedColumn* column : columns_.unit_columns()) {
      const auto is_it = [&](const Placed& one) { return one.column == column; };
      if (std::none_of(placed_.begin(), placed_.end(), is_it)) add(*column);
    }
    const auto write = reinterpret_cast<WriteArrowTable>(arrow_symbol(kWriteTableSymbol, out));
    // Our exceptions must not pass through the library: they are stored, and thrown after the call returns.
    const auto sink = [this](std::string_view bytes) {
      try {
        target_.write(bytes);
      } catch (...) {
        error_ = std::current_exception();
      }
      return error_ == nullptr;
    };
    ArrowFault fault;
    std::vector<ArrowColumn> columns;
    columns.reserve(placed_.size());
    ExportedNames names;
    for (const Placed& placed : placed_) {
      const ColumnSpec& spec = placed.column->spec;
      columns.push_back(described(spec, placed.decoded, exported_));
      columns.back().name = names.name_of(spec.path, columns.back().name);
      if (!placed.named) continue;
      columns.back() = {names.name_of("", placed.named->name), ArrowColumn::Type::kText,
                        spec.width > 0 ? ArrowColumn::Shape::kList : ArrowColumn::Shape::kValue, 0};
    }
    require(write(columns, sink, writer_, fault), fault);
  }

  void write_all() {
    OffsetCursor offset(columns_, "/samples/offset");
    std::uint64_t row_bytes = 1;
    for (const Placed& placed : placed_) row_bytes += placed.column->row_bytes();
    const std::uint64_t most_rows = std::max<std::uint64_t>(1, kGroupBytes / row_bytes);
    ArrowFault fault;
    for (std::uint64_t begin = 0, num_samples = columns_.num_samples(); begin < num_samples;) {
      const std::uint64_t first_row = offset.at(begin);
      std::vector<std::uint64_t> lengths;
      std::uint64_t end = begin, row = first_row;
      while (end < num_samples && (end == begin || (row - first_row < most_rows && end - begin < most_rows))) {
        const std::uint64_t next = offset.at(++end);
        MAGISTER_CHECK(next >= row, ExitCode::kData,
                       "{}: sample {} ends before it begins (the file is damaged); run check", printable(file_.path()),
                       end - 1);
        lengths.push_back(next - row);
        row = next;
      }
      for (std::size_t i = 0; i < placed_.size(); ++i) add_group(i, {begin, end}, {first_row, row}, lengths);
      require(writer_->end_group(fault), fault);
      begin = end;
    }
    require(writer_->finish(fault), fault);
    target_.keep();
  }

 private:
  struct Placed {
    const PlacedColumn* column;
    std::optional<DecodedColumn> decoded{};
    std::optional<NamedColumn> named{};  // its names are written instead of its numbers
  };

  // Adds a column and, if its numbers are codes, a column of their names; "" if a number has no name.
  void add(const PlacedColumn& column) {
    placed_.push_back({.column = &column, .decoded = decoded_column(file_, exported_, column.spec)});
    std::optional<NamedColumn> named = names_beside(file_, exported_, column.spec);
    if (named) placed_.push_back({.column = &column, .named = std::move(named)});
  }

  void require(bool done, const ArrowFault& fault) const {
    if (error_ != nullptr) std::rethrow_exception(error_);
    MAGISTER_CHECK(done, ExitCode::kInputOutput, "{}: the export failed: {} (rows would be missing); report this",
                   printable(out_), printable(fault.problem, 300));
  }

  void add_group(std::size_t index, IndexRange samples, IndexRange rows, const std::vector<std::uint64_t>& lengths) {
    const Placed& placed = placed_[index];
    const PlacedColumn& column = *placed.column;
    const bool of_rows = column.spec.extent == ColumnSpec::Extent::kRows;
    std::vector<std::string> texts;
    std::string values;
    std::vector<std::uint64_t> widths;  // values per sample, for columns of samples
    if (placed.named) {
      for (std::uint64_t i = samples.begin; i < samples.end; ++i) add_names(*placed.named, i, texts, widths);
    } else if (is_text(column.spec.type)) {
      ResultsTextColumn text(file_, column.spec.path);
      for (std::uint64_t i = samples.begin; i < samples.end; ++i) texts.push_back(text.text(i));
    } else {
      columns_.for_each_piece(column, of_rows ? rows : samples, [&](std::uint64_t, std::span<const std::byte> bytes) {
        if (column.spec.type == ColumnType::kF16) {
          to_floats(ColumnType::kF16, bytes, floats_);
          bytes = std::as_bytes(std::span(floats_));
        }
        if (placed.decoded) {
          placed.decoded->decode(bytes, numbers_);
          bytes = std::as_bytes(std::span(numbers_));
        }
        values.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      });
    }
    ArrowFault fault;
    if (!of_rows && !placed.named) widths.assign(samples.size(), column.spec.width);
    require(writer_->add(index, of_rows ? lengths : widths, values, texts, fault), fault);
  }

  void add_names(const NamedColumn& named, std::uint64_t sample, std::vector<std::string>& texts,
                 std::vector<std::uint64_t>& widths) const {
    const auto text_of = [](const nlohmann::json& name) { return name.is_null() ? "" : name.get<std::string>(); };
    const nlohmann::json names = names_in_row(file_, named, sample);
    if (!names.is_array()) return texts.push_back(text_of(names));
    for (const nlohmann::json& name : names) texts.push_back(text_of(name));
    widths.push_back(names.size());
  }

  const ResultsReader& file_;
  const ExportedColumns& exported_;
  const ResultsColumns& columns_;
  const std::string out_;
  WholeFile target_;
  std::vector<Placed> placed_;
  std::exception_ptr error_;
  std::unique_ptr<ArrowWriter> writer_;
  std::vector<float> floats_;
  std::vector<std::int32_t> numbers_;
};

}  // namespace

void export_parquet(const ResultsReader& file, const ExportedColumns& columns, const std::string& out) {
  ParquetExport(file, columns, out).write_all();
}

}  // namespace magister
