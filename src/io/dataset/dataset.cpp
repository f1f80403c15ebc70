// A record is a line. The number of line ends in every block of 4 MiB is known on every rank, so a record's line is found by
// one look into one block, and every rank starts in the middle of the data for the price of 4 MiB.
// Lines end in LF or CRLF; a byte order mark at a file's begin is dropped.
#include "magister/io/dataset/dataset.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "io/dataset/dataset_files.h"
#include "io/dataset/jsonl_record.h"
#include "io/dataset/line_reader.h"
#include "magister/core/error.h"
#include "magister/core/sha256.h"

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

std::string combined_sha256(const std::vector<DataFile>& files) {
  if (files.size() == 1) return files.front().sha256;
  std::string lines;
  for (const DataFile& file : files) {
    lines += file.sha256 + "  " + std::filesystem::path(file.path).filename().string() + "\n";
  }
  return sha256_hex(lines);
}

// Without the byte order mark. UTF-16 is named: it is what an editor wrote, and its bytes look like damage.
std::string_view without_mark(std::string_view line, const std::string& where) {
  MAGISTER_CHECK(!line.starts_with("\xFF\xFE") && !line.starts_with("\xFE\xFF"), ExitCode::kData,
                 "{}: the file is UTF-16 (only UTF-8 is read); convert it, for example with iconv -f UTF-16 -t UTF-8",
                 where);
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  return line;
}

}  // namespace

struct Dataset::Index {
  DatasetConfig config;
  std::vector<DataFile> files;
  std::uint64_t num_records = 0;  // after limit
  std::string sha256;
};

Dataset::Dataset(std::unique_ptr<Index> index) : index_(std::move(index)) {}
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset::~Dataset() = default;

Dataset Dataset::open(const Communicator& world, const DatasetConfig& config, const std::function<bool()>& poll) {
  MAGISTER_CHECK(config.slice_index < config.slice_count, ExitCode::kConfig,
                 "slice {}/{} does not exist (slices of n go from 0 to n - 1); name one of these", config.slice_index,
                 config.slice_count);
  auto index = std::make_unique<Index>();
  index->config = config;
  index->files = list_data_files(world, config);
  scan_data_files(world, index->files, poll);
  index->num_records = index->files.back().first_record + index->files.back().num_records();
  if (config.limit) index->num_records = std::min(index->num_records, *config.limit);
  index->sha256 = combined_sha256(index->files);
  return Dataset(std::move(index));
}

std::uint64_t Dataset::num_source_records() const { return index_->num_records; }

IndexRange Dataset::records() const {
  const auto border = [&](std::uint64_t i) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(index_->num_records) * i /
                                      index_->config.slice_count);
  };
  return {border(index_->config.slice_index), border(index_->config.slice_index + 1)};
}

const std::string& Dataset::sha256() const { return index_->sha256; }

void Dataset::for_each(IndexRange range, const std::function<void(Record&&)>& visit,
                       const std::function<bool()>& poll) const {
  MAGISTER_CHECK(range.begin <= range.end && range.end <= index_->num_records, ExitCode::kInternal,
                 "records {} to {} of {} were asked for (there are no such); report this", range.begin, range.end,
                 index_->num_records);
  JsonlParser parser(index_->config);
  for (const DataFile& file : index_->files) {
    const std::uint64_t begin = std::max(range.begin, file.first_record);
    const std::uint64_t end = std::min(range.end, file.first_record + file.num_records());
    if (begin >= end) continue;
    LineReader reader(file.path, line_begin(file, begin - file.first_record), index_->config.max_line_bytes);
    reader.require(file.version);
    const std::string name = printable(file.path, 4096);
    std::string_view line;
    for (std::uint64_t i = begin; i < end; ++i) {
      if (poll && poll()) return;
      const std::uint64_t line_number = i - file.first_record + 1;
      Record record;
      record.source_index = i;
      record.where = fmt::format("{}:{}", name, line_number);
      MAGISTER_CHECK(reader.next(line, line_number), ExitCode::kInputOutput,
                     "{}: the line is gone (the file changed while it "
                     "was read); leave the data alone during a run",
                     record.where);
      if (line_number == 1) line = without_mark(line, record.where);
      if (file.jsonl) {
        parser.parse(line, record.where, record);
      } else {
        if (line.ends_with('\r')) line.remove_suffix(1);
        check_text(line, record.where);
        record.text = line;
      }
      if (index_->config.key_field.empty()) record.key = std::to_string(i);
      visit(std::move(record));
    }
  }
}

}  // namespace magister
