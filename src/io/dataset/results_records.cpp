// A results file of this program as a data set: a record is a sample, {"key": "...", "tokens": [...]}, with the ids
// that another task has read. Units are checked against their crc32c before they are used.
#include <nlohmann/json.hpp>

#include "io/dataset/line_reader.h"
#include "io/dataset/record_format.h"
#include "magister/core/error.h"
#include "magister/io/results/checked_units.h"
#include "magister/io/results/reader.h"

namespace magister {
namespace {

class ResultsRecords final : public RecordFormat {
 public:
  explicit ResultsRecords(const DataFile& file)
      : version_((LineReader(file.path).require(file.version), file.version)), file_(file.path), units_(file_) {
    file_.column("/tokens/id", ColumnType::kI32);
    file_.column("/samples/key", ColumnType::kUtf8);
  }

  const char* unit() const override { return "sample"; }

  // Needs no index: any sample is found directly.
  std::vector<IndexPoint> index(const Poll&) override {
    std::vector<IndexPoint> points(1);
    if (file_.num_samples() > 0) points.push_back({file_.num_samples(), 0, 0});
    return points;
  }

  void read(std::uint64_t begin, std::uint64_t end, const Poll& poll, const Visit& visit) override {
    const std::size_t width = file_.find("/samples/key")->width;
    for (std::uint64_t i = begin; i < end; ++i) {
      if (poll()) return;
      units_.require(i);
      std::string key(width, '\0');
      file_.read("/samples/key", i, std::as_writable_bytes(std::span(key)));
      key.resize(key.find_last_not_of('\0') + 1);
      const auto offset = file_.rows<std::uint64_t>("/samples/offset", i, 2);
      const nlohmann::json record = {{"key", key},
                                     {"tokens", file_.rows<TokenId>("/tokens/id", offset[0], offset[1] - offset[0])}};
      visit(i, record.dump(), fmt::format("{}: sample {}", printable(file_.path(), 4096), i));
    }
  }

 private:
  FileVersion version_;
  ResultsReader file_;
  CheckedUnits units_;
};

}  // namespace

std::unique_ptr<RecordFormat> open_results(const DataFile& file) { return std::make_unique<ResultsRecords>(file); }

}  // namespace magister
