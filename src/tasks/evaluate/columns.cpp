// Names, types and comments of the evaluation's datasets, and the checks of a file from its bytes alone.
#include "tasks/evaluate/columns.h"

#include <cmath>

#include "magister/run/unit_samples.h"
#include "magister/text/unread.h"

namespace magister {

std::vector<ColumnSpec> evaluate_columns(std::uint64_t num_records, std::uint64_t key_bytes, std::size_t num_methods,
                                         std::size_t num_pass, std::size_t num_majority, bool unread) {
  using Extent = ColumnSpec::Extent;
  std::vector<ColumnSpec> columns = sample_columns(num_records, 0, key_bytes, "no tokens are kept", "none");
  columns.push_back({"/evaluate/correct", ColumnType::kU8, num_records, num_methods,
                     "1: the record's first text is right, by method (attribute `methods`)", "", Extent::kSamples});
  columns.push_back({"/evaluate/pass_at", ColumnType::kF32, num_records, num_methods * num_pass,
                     "that one of k texts is right, unbiased, for each k of the attribute `pass_at` of each method", "",
                     Extent::kSamples});
  if (num_majority > 0)
    columns.push_back(
        {"/evaluate/majority_at", ColumnType::kF32, num_records, num_methods * num_majority,
         "that most of k texts elect a right answer, in the mean over all choices of k, for each k of the "
         "attribute `majority_at` of each method",
         "", Extent::kSamples});
  columns.push_back({"/evaluate/num_tokens", ColumnType::kF32, num_records, num_methods,
                     "mean of the record's texts, by method; -1: the texts are the data set's own", "tokens",
                     Extent::kSamples});
  columns.push_back({"/evaluate/guide_kl", ColumnType::kF32, num_records, num_methods,
                     "KL(guided || reference) of a text, mean of the record's, by method; -1: they were not guided",
                     "nats", Extent::kSamples});
  columns.push_back({"/evaluate/flops", ColumnType::kF32, num_records, num_methods,
                     "of the products that wrote a text, mean of the record's, by method; -1: not known", "FLOP",
                     Extent::kSamples});
  if (unread)
    columns.push_back({"/evaluate/unread", ColumnType::kU32, num_records, num_methods * kNumUnread,
                       "the record's texts by why they were not compared (as /score/unread numbers it; the first: they "
                       "were), for each method",
                       "texts", Extent::kSamples});
  return columns;
}

namespace {

bool has_shares(const ResultsReader& file, FaultList& faults) {
  const auto is = [&file](const char* path, ColumnType type) {
    const ColumnSpec* const column = file.find(path);
    return column != nullptr && column->type == type && column->extent == ColumnSpec::Extent::kSamples;
  };
  if (is("/evaluate/correct", ColumnType::kU8) && is("/evaluate/pass_at", ColumnType::kF32)) return true;
  faults.add("dataset /evaluate/correct or /evaluate/pass_at is missing or of another type");
  return false;
}

void check_shares(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  for (const char* const path : {"/evaluate/pass_at", "/evaluate/majority_at"}) {
    const ColumnSpec* const column = file.find(path);
    if (column == nullptr) continue;
    std::vector<float> values(unit.samples.size() * column->width);
    file.read(path, unit.samples.begin, std::as_writable_bytes(std::span(values)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!(values[i] >= 0 && values[i] <= 1))
        faults.add("unit {}: {} of record {} is {}, no share", unit.index, path, unit.samples.begin + i / column->width,
                   values[i]);
    }
  }
}

}  // namespace

const ResultsSchema kEvaluateSchema = {"magister.evaluate", 1, has_shares, nullptr, check_shares};

}  // namespace magister
