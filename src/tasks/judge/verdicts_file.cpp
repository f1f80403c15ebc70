// Reads verdicts by number from the columns that a judge task writes.
#include "tasks/judge/verdicts_file.h"

#include <optional>

#include "magister/core/error.h"
#include "magister/io/results/checked_units.h"
#include "magister/io/results/reader.h"
#include "tasks/judge/columns.h"

namespace magister {

struct VerdictsFile::Columns {
  explicit Columns(const std::string& path) : file(path) {}
  ResultsReader file;
  std::optional<CheckedUnits> units;
  std::string names;
  std::uint64_t samples_a_text = 1, num_classes = 0;
};

VerdictsFile::VerdictsFile(const std::string& path) : columns_(std::make_unique<Columns>(path)) {
  const ResultsReader& file = columns_->file;
  MAGISTER_CHECK(file.complete() && file.text("format") == kJudgeSchema.format, ExitCode::kData,
                 "{}: is not a complete file of verdicts (there is nothing to combine); run its judge task first",
                 printable(path));
  columns_->units.emplace(file);
  file.column(judge_column::kVerdict);
  file.column(judge_column::kParse);
  file.column(judge_column::kOrder);
  columns_->num_classes = file.column(judge_column::kClassLogprob).width;
  columns_->names = file.text("verdicts");
  columns_->samples_a_text = file.number("samples_a_text");
}
VerdictsFile::~VerdictsFile() = default;
VerdictsFile::VerdictsFile(VerdictsFile&&) noexcept = default;

void VerdictsFile::check(const Communicator& world) const { columns_->units->require_all(world); }

const std::string& VerdictsFile::names() const { return columns_->names; }
std::uint64_t VerdictsFile::samples_a_text() const { return columns_->samples_a_text; }
std::uint64_t VerdictsFile::num_samples() const { return columns_->file.num_samples(); }
std::uint64_t VerdictsFile::num_classes() const { return columns_->num_classes; }

const AttributeValue* VerdictsFile::attribute(const std::string& name) const { return columns_->file.attribute(name); }

void VerdictsFile::read_rows(const std::string& path, std::uint64_t first, std::span<std::byte> data) const {
  columns_->file.read(path, first, data);
}

VerdictsFile::Block VerdictsFile::read(std::uint64_t first, std::uint64_t count) const {
  const ResultsReader& file = columns_->file;
  columns_->units->require(IndexRange{first, first + count});
  Block block;
  block.verdict = file.rows(judge_column::kVerdict, first, count);
  block.parse = file.rows(judge_column::kParse, first, count);
  block.order = file.rows(judge_column::kOrder, first, count);
  block.class_logprob = file.rows(judge_column::kClassLogprob, first, count, columns_->num_classes);
  return block;
}

}  // namespace magister
