// Records cut out of a stream of bytes: CSV, JSON, and everything compressed. An uncompressed file has an index with
// one point every 4 MiB. A compressed one can only be read from its beginning: each rank decodes up to the end of its
// own part, so a pass over the data takes as long as decoding the file once, for any number of ranks; several files are
// shared among the ranks.
#include <algorithm>
#include <optional>
#include <utility>

#include "io/dataset/byte_stream.h"
#include "io/dataset/csv_row.h"
#include "io/dataset/newlines.h"
#include "io/dataset/record_format.h"
#include "io/dataset/record_rule.h"
#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;

// Reads one record after the other, with the byte and the line where it begins.
class RecordCutter {
 public:
  RecordCutter(const DataFile& file, const IndexPoint& from, std::uint64_t max_bytes)
      : name_(printable(file.path, 4096)),
        bytes_(open_bytes(file, from.place)),
        rule_(record_rule(file.kind, from.place > 0)),
        max_bytes_(max_bytes),
        offset_(from.place),
        line_(from.line) {
    if (from.place > 0) return;
    while (!last_ && end_ < 3) fill();
    consume(end_ - without_mark(pending(), where()).size());
  }

  // The next record, valid until the next call; false at the end, or if poll, asked at every MiB that is read, returns
  // true.
  bool next(std::string_view& record, const RecordFormat::Poll& poll) {
    consume(cut_.next);
    cut_ = {};
    while (!find()) {
      consume(cut_.next);  // bytes that belong to no record
      cut_ = {};
      if (!last_) stopped_ = poll();
      if (last_ || stopped_) return false;
      fill();
    }
    consume(cut_.begin);
    cut_ = {0, cut_.end - cut_.begin, cut_.next - cut_.begin};
    record = pending().substr(0, cut_.end);
    return true;
  }

  bool stopped() const { return stopped_; }  // next() returned false because of poll
  IndexPoint point(std::uint64_t record) const { return {record, offset_, line_}; }  // for the last record of next()
  std::string where() const { return fmt::format("{}:{}", name_, line_ + 1); }

 private:
  std::string_view pending() const { return {buffer_.data() + begin_, end_ - begin_}; }

  bool find() {
    try {
      return rule_->find(pending(), last_, cut_);
    } catch (const RecordRule::Fault& fault) {
      fail(ExitCode::kData, "{}:{}: {}", name_, line_ + 1 + count_newlines(pending().substr(0, fault.at)),
           fault.problem);
    }
  }

  void consume(std::size_t count) {
    line_ += count_newlines(pending().substr(0, count));
    begin_ += count;
    offset_ += count;
  }

  void fill() {
    MAGISTER_CHECK(end_ - begin_ <= max_bytes_, ExitCode::kData,
                   "{}: the record is longer than {} bytes (it is not a record); check what kind of file it is",
                   where(), max_bytes_);
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
    if (buffer_.size() < end_ + kReadBytes) buffer_.resize(end_ + kReadBytes);
    const std::size_t n = bytes_->read({buffer_.data() + end_, kReadBytes});
    end_ += n;
    last_ = n == 0;
  }

  const std::string name_;
  const std::unique_ptr<ByteStream> bytes_;
  const std::unique_ptr<RecordRule> rule_;
  const std::uint64_t max_bytes_;
  std::uint64_t offset_, line_;
  bool last_ = false, stopped_ = false;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // pending part of the buffer
  RecordRule::Cut cut_;
};

class StreamRecords final : public RecordFormat {
 public:
  StreamRecords(const DataFile& file, const DatasetConfig& config)
      : file_(file),
        config_(config),
        separator_(file.kind == DataKind::kCsv ? ',' : '\t'),
        has_header_(file.kind == DataKind::kCsv || file.kind == DataKind::kTsv) {}

  bool is_json() const override { return file_.kind != DataKind::kText; }
  const char* unit() const override { return has_header_ ? "row" : file_.kind == DataKind::kJson ? "record" : "line"; }

  std::vector<IndexPoint> index(const Poll& poll) override {
    const Poll stop = [&poll] {
      if (poll()) throw Error(ExitCode::kStopped, "stopped");
      return false;
    };
    RecordCutter cutter(file_, {}, config_.max_line_bytes);
    if (has_header_) read_header(cutter, stop);
    std::vector<IndexPoint> points{{}};
    std::string_view record;
    std::uint64_t count = 0;
    for (; cutter.next(record, stop); ++count) {
      const IndexPoint point = cutter.point(count);
      const bool far = point.place >= points.back().place + kDataBlockBytes;
      if (far && file_.compression == Compression::kNone) points.push_back(point);
    }
    points.push_back({count, 0, 0});
    return points;
  }

  void read(std::uint64_t begin, std::uint64_t end, const Poll& poll, const Visit& visit) override {
    const IndexPoint& from = point_before(file_.index, begin);
    RecordCutter cutter(file_, from, config_.max_line_bytes);
    std::optional<CsvColumns> columns;
    if (has_header_) {
      RecordCutter first(file_, {}, config_.max_line_bytes);
      std::optional<CsvColumns> header = read_header(from.place == 0 ? cutter : first, poll);
      if (!header) return;
      columns.emplace(std::move(*header));
    }
    std::string_view record;
    for (std::uint64_t i = from.record; i < end; ++i) {
      if (i >= begin && poll()) return;
      if (!cutter.next(record, poll)) {
        MAGISTER_CHECK(cutter.stopped(), ExitCode::kInputOutput,
                       "{}: record {} is gone (the file changed while it was read); leave the data alone during a run",
                       printable(file_.path), i);
        return;
      }
      if (i < begin) continue;
      const std::string where = cutter.where();
      visit(i, columns ? columns->as_json(record, where) : record, where);
    }
  }

 private:
  // A CSV file without a first row has no columns, so no field can be read from it. nullopt: poll returned true.
  std::optional<CsvColumns> read_header(RecordCutter& cutter, const Poll& poll) const {
    std::string_view header;
    const bool found = cutter.next(header, poll);
    if (cutter.stopped()) return std::nullopt;
    MAGISTER_CHECK(found, ExitCode::kData, "{}: has no first row (it names the columns); write one",
                   printable(file_.path));
    return CsvColumns(header, separator_, config_, cutter.where());
  }

  const DataFile& file_;
  const DatasetConfig& config_;
  const char separator_;
  const bool has_header_;
};

}  // namespace

std::unique_ptr<RecordFormat> open_stream(const DataFile& file, const DatasetConfig& config) {
  return std::make_unique<StreamRecords>(file, config);
}

}  // namespace magister
