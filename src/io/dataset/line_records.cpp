// A record is a line. The number of line ends in every block of 4 MiB is known on every rank, so a record's line is found by
// one look into one block, and every rank starts in the middle of the data for the price of 4 MiB.
// Lines end in LF or CRLF; a byte order mark at a file's begin is dropped.
#include <algorithm>

#include "io/dataset/line_reader.h"
#include "io/dataset/record_format.h"
#include "magister/core/error.h"

namespace magister {
namespace {

// Byte where line `line` begins.
std::uint64_t line_begin(const DataFile& file, std::uint64_t line) {
  if (line == 0) return 0;
  const auto after = std::lower_bound(file.ends_before.begin(), file.ends_before.end(), line);
  const auto block = static_cast<std::uint64_t>(after - file.ends_before.begin()) - 1;
  const LineReader reader(file.path);
  reader.require(file.version);
  std::vector<char> buffer(kDataBlockBytes);
  const std::size_t n = reader.read_at(block * kDataBlockBytes, buffer);
  std::uint64_t left = line - file.ends_before[block];
  for (std::size_t i = 0; i < n; ++i) {
    if (buffer[i] == '\n' && --left == 0) return block * kDataBlockBytes + i + 1;
  }
  fail(ExitCode::kInputOutput,
       "{}: line {} is not where it was (the file changed while it was read); leave the data alone "
       "during a run",
       printable(file.path), line + 1);
}

class LineRecords final : public RecordFormat {
 public:
  LineRecords(const DataFile& file, const DatasetConfig& config)
      : file_(file), max_line_bytes_(config.max_line_bytes) {}

  bool is_json() const override { return file_.kind == DataKind::kJsonLines; }
  const char* unit() const override { return "line"; }

  std::vector<IndexPoint> index(const Poll&) override {
    fail(ExitCode::kInternal, "{}: an index of lines was asked for (blocks are counted instead); report this",
         printable(file_.path));
  }

  void read(std::uint64_t begin, std::uint64_t end, const Poll& poll, const Visit& visit) override {
    LineReader reader(file_.path, line_begin(file_, begin), max_line_bytes_);
    reader.require(file_.version);
    const std::string name = printable(file_.path, 4096);
    std::string_view line;
    for (std::uint64_t i = begin; i < end; ++i) {
      if (poll()) return;
      const std::string where = fmt::format("{}:{}", name, i + 1);
      MAGISTER_CHECK(reader.next(line, i + 1), ExitCode::kInputOutput,
                     "{}: the line is gone (the file changed while it "
                     "was read); leave the data alone during a run",
                     where);
      if (i == 0) line = without_mark(line, where);
      visit(i, line, where);
    }
  }

 private:
  const DataFile& file_;
  const std::uint64_t max_line_bytes_;
};

}  // namespace

std::unique_ptr<RecordFormat> open_lines(const DataFile& file, const DatasetConfig& config) {
  return std::make_unique<LineRecords>(file, config);
}

const IndexPoint& point_before(const std::vector<IndexPoint>& index, std::uint64_t record) {
  const auto after =
      std::upper_bound(index.begin(), index.end() - 1, record,
                       [](std::uint64_t value, const IndexPoint& point) { return value < point.record; });
  return *(after - 1);
}

// Without the byte order mark. UTF-16 is named: it is what an editor wrote, and its bytes look like damage.
std::string_view without_mark(std::string_view line, const std::string& where) {
  MAGISTER_CHECK(!line.starts_with("\xFF\xFE") && !line.starts_with("\xFE\xFF"), ExitCode::kData,
                 "{}: the file is UTF-16 (only UTF-8 is read); convert it, for example with iconv -f UTF-16 -t UTF-8",
                 where);
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  return line;
}

}  // namespace magister
