// Verdicts by number; see results_verdicts.h.
#include "magister/io/results/verdicts.h"

#include "io/results/reader.h"
#include "magister/core/error.h"

namespace magister {

struct ResultsVerdicts::Columns {
  explicit Columns(const std::string& path) : file(path) {}
  ResultsReader file;
  std::string names;
  std::uint64_t samples_a_text = 1, num_classes = 0;
};

ResultsVerdicts::ResultsVerdicts(const std::string& path) : columns_(std::make_unique<Columns>(path)) {
  const ResultsReader& file = columns_->file;
  MAGISTER_CHECK(file.complete() && file.text("format") == "magister.judge", ExitCode::kData,
                 "{}: is no complete file of verdicts (there is nothing to combine); run its judge task first",
                 printable(path));
  file.column("/judge/verdict", ColumnType::kI32);
  file.column("/judge/parse", ColumnType::kU8);
  file.column("/judge/order", ColumnType::kU8);
  columns_->num_classes = file.column("/judge/class_logprob", ColumnType::kF32).spec.width;
  columns_->names = file.text("verdicts");
  columns_->samples_a_text = file.number("samples_a_text");
}
ResultsVerdicts::~ResultsVerdicts() = default;
ResultsVerdicts::ResultsVerdicts(ResultsVerdicts&&) noexcept = default;

const std::string& ResultsVerdicts::names() const { return columns_->names; }
std::uint64_t ResultsVerdicts::samples_a_text() const { return columns_->samples_a_text; }
std::uint64_t ResultsVerdicts::num_samples() const { return columns_->file.columns().num_samples(); }
std::uint64_t ResultsVerdicts::num_classes() const { return columns_->num_classes; }

const AttributeValue* ResultsVerdicts::attribute(const std::string& name) const {
  return find_attribute(columns_->file.attributes(), name);
}

void ResultsVerdicts::read_rows(const std::string& path, std::uint64_t first, std::span<std::byte> data) const {
  const ResultsColumns& columns = columns_->file.columns();
  const PlacedColumn* const column = columns.find(path);
  MAGISTER_CHECK(column != nullptr && data.size() % column->row_bytes() == 0 &&
                     first + data.size() / column->row_bytes() <= column->spec.num_rows,
                 ExitCode::kData,
                 "{}: dataset {} does not have these rows (the file is damaged or of another version); run check",
                 printable(columns_->file.path()), printable(path));
  columns.read(*column, first, data);
}

ResultsVerdicts::Block ResultsVerdicts::read(std::uint64_t first, std::uint64_t count) const {
  const ResultsColumns& columns = columns_->file.columns();
  Block block;
  block.verdict = columns.rows<std::int32_t>("/judge/verdict", first, count);
  block.parse = columns.rows<std::uint8_t>("/judge/parse", first, count);
  block.order = columns.rows<std::uint8_t>("/judge/order", first, count);
  block.class_logprob.resize(count * columns_->num_classes);
  columns.read(columns.at("/judge/class_logprob"), first, std::as_writable_bytes(std::span(block.class_logprob)));
  return block;
}

}  // namespace magister
