// Names, types and comments of the evaluation's datasets, and the checks of a file from its bytes alone.
#include "tasks/evaluate/columns.h"

#include <cmath>

#include "magister/run/unit_samples.h"
#include "magister/tasks/score/scores_file.h"
#include "magister/text/unread.h"

namespace magister {

std::vector<ColumnSpec> evaluate_columns(std::uint64_t num_records, std::uint64_t key_bytes, std::size_t num_methods,
                                         std::size_t num_pass, std::size_t num_majority, bool unread) {
  using namespace evaluate_column;
  std::vector<ColumnSpec> columns = sample_columns(num_records, 0, key_bytes, "no tokens are kept", "none");
  columns.push_back(kCorrect.spec(num_records, num_methods));
  columns.push_back(kPassAt.spec(num_records, num_methods * num_pass));
  if (num_majority > 0) columns.push_back(kMajorityAt.spec(num_records, num_methods * num_majority));
  columns.push_back(kNumTokens.spec(num_records, num_methods));
  columns.push_back(kGuideKl.spec(num_records, num_methods));
  columns.push_back(kFlops.spec(num_records, num_methods));
  if (unread) {
    columns.push_back(kUnread.spec(
        num_records, num_methods * kNumUnread,
        fmt::format("the record's texts by why they were not compared (as {} numbers it; the first: they were), for "
                    "each method",
                    ScoresFile::kUnreadColumn)));
  }
  return columns;
}

namespace {

bool has_shares(const ResultsReader& file, FaultList& faults) {
  using namespace evaluate_column;
  if (kCorrect.fits(file.find(kCorrect)) && kPassAt.fits(file.find(kPassAt))) return true;
  faults.add("dataset {} or {} is missing or of another type", kCorrect.path, kPassAt.path);
  return false;
}

void check_shares(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  for (const Column<float>& share : {evaluate_column::kPassAt, evaluate_column::kMajorityAt}) {
    const ColumnSpec* const column = file.find(share);
    if (column == nullptr) continue;
    const auto values = file.rows(share, unit.samples.begin, unit.samples.size(), column->width);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!(values[i] >= 0 && values[i] <= 1))
        faults.add("unit {}: {} of record {} is {}, no share", unit.index, share.path,
                   unit.samples.begin + i / column->width, values[i]);
    }
  }
}

constexpr ColumnNames kNamesOfMethods[] = {
    {.path = evaluate_column::kCorrect.path, .attribute = "methods", .of_places = "methods"}};

}  // namespace

constinit const ResultsSchema kEvaluateSchema = {
    .format = "magister.evaluate", .columns = has_shares, .rows = check_shares, .exported = {.names = kNamesOfMethods}};

}  // namespace magister
