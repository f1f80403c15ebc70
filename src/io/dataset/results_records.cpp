// A results file of this program as a data set. A record is a sample: {"key": "...", "tokens": [...]} with the ids that
// another task has read, or its fields (results_fields.h). Units are checked against their crc32c before they are used.
#include <nlohmann/json.hpp>

#include "io/dataset/line_reader.h"
#include "io/dataset/record_format.h"
#include "io/dataset/results_fields.h"
#include "magister/core/error.h"
#include "magister/io/results/checked_units.h"
#include "magister/io/results/reader.h"

namespace magister {
namespace {

class ResultsRecords final : public RecordFormat {
 public:
  ResultsRecords(const DataFile& file, const DatasetConfig& config)
      : version_((LineReader(file.path).require(file.version), file.version)),
        index_(file.index),
        file_(file.path),
        units_(file_) {
    file_.column("/samples/key", ColumnType::kUtf8);
    if (config.results_fields)
      fields_ = std::make_unique<ResultsFields>(file_, config.keep);
    else
      file_.column("/tokens/id", ColumnType::kI32);
  }

  const char* unit() const override { return "sample"; }

  // A point for each run of samples that are kept; place: the number of its first sample.
  std::vector<IndexPoint> index(const Poll& poll) override {
    std::vector<IndexPoint> points(1);
    std::uint64_t kept = 0, next = 0;  // next: the sample after the last one that is kept
    const std::uint64_t n = file_.num_samples();
    if (!fields_ || !fields_->filters()) {
      kept = n;
    } else {
      for (std::uint64_t i = 0; i < n; ++i) {
        if (poll()) throw Error(ExitCode::kStopped, "stopped");
        units_.require(i);
        if (!fields_->is_kept(i)) continue;
        if (kept == 0)
          points[0].place = i;
        else if (i != next)
          points.push_back({kept, i, 0});
        next = i + 1;
        ++kept;
      }
      MAGISTER_CHECK(kept > 0, ExitCode::kData,
                     "{}: dataset.keep leaves none of its {} samples (there would be nothing to do); loosen it",
                     printable(file_.path(), 4096), n);
    }
    if (kept > 0) points.push_back({kept, 0, 0});
    return points;
  }

  void read(std::uint64_t begin, std::uint64_t end, const Poll& poll, const Visit& visit) override {
    for (std::uint64_t record = begin; record < end; ++record) {
      if (poll()) return;
      const IndexPoint& run = point_before(index_, record);
      const std::uint64_t i = run.place + (record - run.record);
      units_.require(i);
      const nlohmann::ordered_json line = fields_ ? fields_->of(i) : tokens_of(i);
      visit(record, line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
            fmt::format("{}: sample {}", printable(file_.path(), 4096), i));
    }
  }

 private:
  nlohmann::ordered_json tokens_of(std::uint64_t i) const {
    const auto offset = file_.rows<std::uint64_t>("/samples/offset", i, 2);
    return {{"key", sample_key(file_, i)},
            {"tokens", file_.rows<TokenId>("/tokens/id", offset[0], offset[1] - offset[0])}};
  }

  FileVersion version_;
  const std::vector<IndexPoint>& index_;  // made by index() in an earlier reader
  ResultsReader file_;
  CheckedUnits units_;
  std::unique_ptr<ResultsFields> fields_;  // null: records of token ids
};

}  // namespace

std::unique_ptr<RecordFormat> open_results(const DataFile& file, const DatasetConfig& config) {
  return std::make_unique<ResultsRecords>(file, config);
}

}  // namespace magister
