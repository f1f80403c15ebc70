// Parquet and Arrow files through the plug-in. Each row group or record batch is an entry of the index, so a rank reads
// only the parts with its records and skips rows only inside the first of them.
#include <optional>

#include "io/dataset/arrow_plugin.h"
#include "io/dataset/line_reader.h"
#include "io/dataset/record_format.h"
#include "io/dataset/wanted_fields.h"
#include "magister/core/error.h"
#include "magister/io/dataset/field_path.h"

namespace magister {
namespace {

ArrowRequest request_for(const DataFile& file, const DatasetConfig& config) {
  ArrowRequest request{file.path, file.kind == DataKind::kParquet, false, {}};
  const auto fields = wanted_fields(config);
  request.all_columns = !fields;
  for (const std::string& field : fields.value_or(std::vector<std::string>())) {
    ArrowField wanted{field, {}};
    if (const auto path = parse_field_path(field)) {
      for (const auto& part : *path) {
        const auto* const name = std::get_if<std::string>(&part);
        wanted.path.push_back(name == nullptr ? "" : *name);
      }
    }
    request.fields.push_back(wanted);
  }
  return request;
}

class TableRecords final : public RecordFormat {
 public:
  TableRecords(const DataFile& file, const DatasetConfig& config)
      : file_(file),
        name_(printable(file.path, 4096)),
        part_name_(file.kind == DataKind::kParquet ? "row group" : "record batch") {
    static const auto open = reinterpret_cast<OpenArrowTable>(arrow_symbol(kOpenTableSymbol, file.path));
    LineReader(file.path).require(file.version);
    ArrowFault fault;
    if (!open(request_for(file, config), table_, fault)) refuse(name_, fault);
  }

  const char* unit() const override { return "row"; }

  std::vector<IndexPoint> index(const Poll& poll) override {
    std::vector<IndexPoint> points;
    std::uint64_t rows = 0;
    ArrowPart part;
    ArrowFault fault;
    while (table_->next_part(part, fault)) {
      if (poll()) throw Error(ExitCode::kStopped, "stopped");
      points.push_back({rows, part.place, points.size()});
      // A negative number of rows in the file becomes a huge one here.
      MAGISTER_CHECK(part.rows <= INT64_MAX && !__builtin_add_overflow(rows, part.rows, &rows), ExitCode::kData,
                     "{}: says that it has {} rows (no file has; it is damaged); write it again",
                     part_of(points.size() - 1), part.rows);
    }
    if (fault.kind != ArrowFault::Kind::kNone) refuse(part_of(points.size()), fault);
    if (points.empty()) points.push_back({});
    points.push_back({rows, 0, points.size()});
    return points;
  }

  void read(std::uint64_t begin, std::uint64_t end, const Poll& poll, const Visit& visit) override {
    std::string json;
    const IndexPoint* point = nullptr;
    std::string part;
    for (std::uint64_t i = begin; i < end; ++i) {
      if (poll()) return;
      ArrowFault fault;
      if (point == nullptr || i >= (point + 1)->record) {
        point = &point_before(file_.index, i);
        part = part_of(point->line);
        if (!table_->seek(point->line, point->place, i - point->record, fault)) refuse(part, fault);
      }
      const std::string where = fmt::format("{}, row {}", part, i - point->record);
      if (!table_->next(json, fault)) refuse(where, fault);
      visit(i, json, where);
    }
  }

 private:
  std::string part_of(std::uint64_t number) const { return fmt::format("{}: {} {}", name_, part_name_, number); }

  [[noreturn]] static void refuse(const std::string& where, const ArrowFault& fault) {
    if (fault.kind == ArrowFault::Kind::kNoColumn) fail_no_column(where, fault.problem, fault.columns);
    if (fault.kind == ArrowFault::Kind::kInputOutput) {
      fail(ExitCode::kInputOutput, "{}: reading failed: {} (records would be lost); check the disk", where,
           printable(fault.problem, 300));
    }
    fail(ExitCode::kData,
         "{}: cannot be read: {} (records would be lost); check the file with pyarrow, or write it again", where,
         fault.problem.empty() ? "rows are missing" : printable(fault.problem, 300));
  }

  const DataFile& file_;
  const std::string name_;
  const char* const part_name_;
  std::unique_ptr<ArrowTable> table_;
};

}  // namespace

std::unique_ptr<RecordFormat> open_table(const DataFile& file, const DatasetConfig& config) {
  return std::make_unique<TableRecords>(file, config);
}

}  // namespace magister
