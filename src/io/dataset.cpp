// Files -> blocks of 4 MiB with the number of line ends in each, counted by all ranks together. A record's line is then
// found by one look into one block, so every rank starts in the middle of the data for the price of 4 MiB.
#include "magister/io/dataset.h"

#include <glob.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>

#include "io/jsonl_record.h"
#include "io/line_reader.h"
#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/core/utf8.h"

namespace magister {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kBlockBytes = 4 << 20;

struct DataFile {
  std::string path;
  bool jsonl = false;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> ends_before;  // line ends before block i; one more entry: in the whole file
  bool last_line_open = false;             // the last line has no '\n'
  std::uint64_t first_record = 0;
  std::uint64_t num_records() const { return ends_before.back() + (last_line_open ? 1 : 0); }
};

std::vector<std::string> expand(const std::string& pattern) {
  if (fs::exists(pattern) || pattern.find_first_of("*?[") == std::string::npos) return {pattern};
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  MAGISTER_CHECK(!paths.empty(), ExitCode::kInputOutput, "{}: no file matches (there is nothing to read); check "
                 "dataset.path", printable(pattern));
  return paths;
}

DataFile open_data_file(const std::string& path, const DatasetConfig& config) {
  MAGISTER_CHECK(fs::exists(path), ExitCode::kInputOutput, "{}: there is no such file (there is nothing to read); check "
                 "dataset.path", printable(path));
  MAGISTER_CHECK(!fs::is_directory(path), ExitCode::kInputOutput, "{}: is a folder (a data set is files); name its files, for "
                 "example {}/*.jsonl", printable(path), printable(path));
  DataFile file;
  file.path = path;
  const std::string extension = fs::path(path).extension().string();
  file.jsonl = extension == ".jsonl";
  MAGISTER_CHECK(file.jsonl || extension == ".txt", ExitCode::kData,
                 "{}: \"{}\" data sets are not read yet (.jsonl and .txt are); convert the file", printable(path),
                 printable(extension));
  MAGISTER_CHECK(file.jsonl || (config.tokens_field.empty() && config.key_field.empty()), ExitCode::kData,
                 "{}: plain text has no fields (dataset.tokens and dataset.key name some); use .jsonl", printable(path));
  file.bytes = LineReader(path, 0, 0).file_bytes();
  return file;
}

// Line ends in one block, and whether the file's last byte, if it is in this block, is none.
std::uint32_t count_ends(const DataFile& file, std::uint64_t block, std::vector<char>& buffer) {
  LineReader reader(file.path, block * kBlockBytes, 0);
  buffer.resize(kBlockBytes);
  const std::size_t n = reader.read_raw(buffer.data(), buffer.size());
  const auto ends = static_cast<std::uint32_t>(std::count(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(n), '\n'));
  const bool holds_last_byte = block * kBlockBytes + n == file.bytes;
  const bool open = holds_last_byte && n > 0 && buffer[n - 1] != '\n';
  return ends | (open ? 0x80000000u : 0u);
}

// Fills ends_before and last_line_open: rank r counts blocks r, r + size, ... Collective over world.
void count_lines(const Communicator& world, DataFile& file) {
  const std::uint64_t num_blocks = (file.bytes + kBlockBytes - 1) / kBlockBytes;
  const auto size = static_cast<std::uint64_t>(world.size());
  std::vector<std::uint32_t> mine((num_blocks + size - 1) / size, 0), all(mine.size() * size);
  std::vector<char> buffer;
  for (std::uint64_t i = 0; i < mine.size(); ++i) {
    const std::uint64_t block = i * size + static_cast<std::uint64_t>(world.rank());
    if (block < num_blocks) mine[i] = count_ends(file, block, buffer);
  }
  world.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  file.ends_before.assign(1, 0);
  for (std::uint64_t block = 0; block < num_blocks; ++block) {
    const std::uint32_t count = all[block % size * mine.size() + block / size];
    file.ends_before.push_back(file.ends_before.back() + (count & 0x7FFFFFFFu));
    file.last_line_open = (count & 0x80000000u) != 0;
  }
}

// Byte where line `line` begins.
std::uint64_t line_begin(const DataFile& file, std::uint64_t line) {
  if (line == 0) return 0;
  const auto after = std::lower_bound(file.ends_before.begin(), file.ends_before.end(), line);
  const auto block = static_cast<std::uint64_t>(after - file.ends_before.begin()) - 1;
  LineReader reader(file.path, block * kBlockBytes, 0);
  std::vector<char> buffer(kBlockBytes);
  const std::size_t n = reader.read_raw(buffer.data(), buffer.size());
  std::uint64_t left = line - file.ends_before[block];
  for (std::size_t i = 0; i < n; ++i) {
    if (buffer[i] == '\n' && --left == 0) return block * kBlockBytes + i + 1;
  }
  fail(ExitCode::kInputOutput, "{}: line {} is not where it was (the file changed while it was read); leave the data alone "
       "during a run", printable(file.path), line + 1);
}

std::string hash_file(const DataFile& file) {
  LineReader reader(file.path, 0, 0);
  Sha256 hash;
  std::vector<char> buffer(kBlockBytes);
  while (const std::size_t n = reader.read_raw(buffer.data(), buffer.size())) {
    hash.update(std::string_view(buffer.data(), n));
  }
  return hash.hex();
}

// Collective over world; rank i % size hashes file i.
std::string hash_files(const Communicator& world, const std::vector<DataFile>& files) {
  std::string mine;
  const auto is_mine = [&](std::size_t i) { return static_cast<int>(i % static_cast<std::size_t>(world.size())) == world.rank(); };
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (is_mine(i)) mine += hash_file(files[i]);
  }
  const auto parts = world.all_gather(mine);
  std::string lines;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto size = static_cast<std::size_t>(world.size());
    const std::string hash = parts[i % size].substr(i / size * 64, 64);
    if (files.size() == 1) return hash;
    lines += hash + "  " + fs::path(files[i].path).filename().string() + "\n";
  }
  return sha256_hex(lines);
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

Dataset Dataset::open(const Communicator& world, const DatasetConfig& config) {
  auto index = std::make_unique<Index>();
  index->config = config;
  for (const std::string& pattern : config.paths) {
    for (const std::string& path : expand(pattern)) index->files.push_back(open_data_file(path, config));
  }
  for (DataFile& file : index->files) {
    count_lines(world, file);
    file.first_record = index->num_records;
    index->num_records += file.num_records();
  }
  if (config.limit) index->num_records = std::min(index->num_records, *config.limit);
  index->sha256 = hash_files(world, index->files);
  return Dataset(std::move(index));
}

std::uint64_t Dataset::num_source_records() const { return index_->num_records; }

IndexRange Dataset::records() const {
  const auto border = [&](std::uint64_t i) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(index_->num_records) * i / index_->config.slice_count);
  };
  return {border(index_->config.slice_index), border(index_->config.slice_index + 1)};
}

const std::string& Dataset::sha256() const { return index_->sha256; }

void Dataset::for_each(IndexRange range, const std::function<void(Record&&)>& visit) const {
  for (const DataFile& file : index_->files) {
    const std::uint64_t begin = std::max(range.begin, file.first_record);
    const std::uint64_t end = std::min(range.end, file.first_record + file.num_records());
    if (begin >= end) continue;
    LineReader reader(file.path, line_begin(file, begin - file.first_record), index_->config.max_line_bytes);
    std::string_view line;
    for (std::uint64_t i = begin; i < end; ++i) {
      const std::uint64_t line_number = i - file.first_record + 1;
      Record record;
      record.source_index = i;
      record.where = fmt::format("{}:{}", printable(file.path), line_number);
      MAGISTER_CHECK(reader.next(line, line_number), ExitCode::kInputOutput, "{}: the line is gone (the file changed while it "
                     "was read); leave the data alone during a run", record.where);
      if (line_number == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // a byte order mark says nothing
      if (file.jsonl) {
        parse_jsonl_record(line, index_->config, record.where, record);
      } else {
        if (line.ends_with('\r')) line.remove_suffix(1);
        const std::size_t bad = find_invalid_utf8(line);
        MAGISTER_CHECK(bad == line.size(), ExitCode::kData, "{}: not valid UTF-8 at byte {} of the line (the text would be "
                       "guessed); convert the file to UTF-8", record.where, bad + 1);
        record.text = line;
      }
      if (index_->config.key_field.empty()) record.key = std::to_string(i);
      visit(std::move(record));
    }
  }
}

}  // namespace magister
