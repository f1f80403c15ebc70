// A record is a line; in JSONL a line that is not blank. Every rank knows how many records and lines end in every block
// of 4 MiB. So a record's line is found by reading one block, and a rank starts in the middle of the data at the cost
// of 4 MiB. Lines end in LF or CRLF; a byte order mark at the beginning of a file is dropped.
#include <algorithm>

#include "io/dataset/line_reader.h"
#include "io/dataset/newlines.h"
#include "io/dataset/record_format.h"
#include "magister/core/error.h"

namespace magister {
namespace {

// The end of the record before `record`: a byte, and the number of lines up to it. Blank lines may follow.
IndexPoint end_before(const DataFile& file, std::uint64_t record) {
  if (record == 0) return {};
  const auto after = std::lower_bound(file.blocks.begin(), file.blocks.end(), record,
                                      [](const LinesBefore& one, std::uint64_t value) { return one.records < value; });
  const auto block = static_cast<std::uint64_t>(after - file.blocks.begin()) - 1;
  const LineReader reader(file.path);
  reader.require(file.version);
  std::vector<char> buffer(kDataBlockBytes);
  const std::string_view bytes(buffer.data(), reader.read_at(block * kDataBlockBytes, buffer));
  const bool skips_blank = file.skips_blank_lines();
  // The block's first line may have begun in an earlier block. It is a record if the block has more records than its
  // other lines.
  const std::uint64_t records = file.blocks[block + 1].records - file.blocks[block].records;
  bool is_record = records > count_lines(bytes, skips_blank).records;
  std::uint64_t left = record - file.blocks[block].records, lines = file.blocks[block].lines;
  for (std::size_t begin = 0;;) {
    const std::size_t end = bytes.find('\n', begin);
    if (end == std::string_view::npos) break;
    if (begin > 0) is_record = !skips_blank || !is_blank_line(bytes.substr(begin, end - begin));
    ++lines;
    begin = end + 1;
    if (is_record && --left == 0) return {record, block * kDataBlockBytes + begin, lines};
  }
  fail(ExitCode::kInputOutput,
       "{}: record {} is not where it was (the file changed while it was read); leave the data alone during a run",
       printable(file.path), record);
}

class LineRecords final : public RecordFormat {
 public:
  LineRecords(const DataFile& file, const DatasetConfig& config)
      : file_(file), name_(printable(file.path, 4096)), max_line_bytes_(config.max_line_bytes) {}

  bool is_json() const override { return file_.kind == DataKind::kJsonLines; }
  const char* unit() const override { return "line"; }

  std::vector<IndexPoint> index(const Poll&) override {
    fail(ExitCode::kInternal, "{}: an index of lines was asked for (blocks are counted instead); report this",
         printable(file_.path));
  }

  void read(std::uint64_t begin, std::uint64_t end, const Poll& poll, const Visit& visit) override {
    const IndexPoint from = end_before(file_, begin);
    LineReader reader(file_.path, from.place, max_line_bytes_);
    reader.require(file_.version);
    std::uint64_t number = from.line;  // of the last line read
    std::string_view line;
    for (std::uint64_t i = begin; i < end; ++i) {
      if (poll()) return;
      do {
        MAGISTER_CHECK(
            reader.next(line, ++number), ExitCode::kInputOutput,
            "{}:{}: the line is gone (the file changed while it was read); leave the data alone during a run", name_,
            number);
        if (number == 1) line = without_mark(line, fmt::format("{}:1", name_));
      } while (file_.skips_blank_lines() && is_blank_line(line));
      visit(i, line, fmt::format("{}:{}", name_, number));
    }
  }

 private:
  const DataFile& file_;
  const std::string name_;
  const std::uint64_t max_line_bytes_;
};

}  // namespace

std::unique_ptr<RecordFormat> open_lines(const DataFile& file, const DatasetConfig& config) {
  return std::make_unique<LineRecords>(file, config);
}

// Removes the byte order mark. UTF-16 has a message of its own, because some editors write it and its bytes look like
// damage.
std::string_view without_mark(std::string_view line, const std::string& where) {
  MAGISTER_CHECK(!line.starts_with("\xFF\xFE") && !line.starts_with("\xFE\xFF"), ExitCode::kData,
                 "{}: the file is UTF-16 (only UTF-8 is read); convert it, for example with iconv -f UTF-16 -t UTF-8",
                 where);
  if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  return line;
}

}  // namespace magister
