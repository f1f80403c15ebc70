// The files of a data set: listed by rank 0 (globs expanded, kinds checked), then scanned by all ranks together for the
// number of records and lines in every block of 4 MiB, or another kind's index, and for the sha256 of every file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/dataset/line_reader.h"
#include "magister/io/dataset/dataset.h"

namespace magister {

constexpr std::uint64_t kDataBlockBytes = 4 << 20;

enum class DataKind : char {
  kText = 't',
  kJsonLines = 'j',
  kJson = 'J',
  kCsv = 'c',
  kTsv = 'T',
  kParquet = 'p',
  kArrow = 'a',
  kResults = 'h'
};
enum class Compression : char { kNone = '-', kGzip = 'g', kZstd = 'z' };

// Where a record begins: its number in the file, and what the file's format needs to find it (a byte, a line; a row group).
struct IndexPoint {
  std::uint64_t record = 0, place = 0, line = 0;
};

// Of a file of lines: the records and the lines that end before a block.
struct LinesBefore {
  std::uint64_t records = 0, lines = 0;
};

struct DataFile {
  std::string path;
  FileVersion version;
  DataKind kind = DataKind::kText;
  Compression compression = Compression::kNone;
  std::uint64_t first_block = 0;  // of the blocks that are counted in the whole data set
  std::uint64_t first_record = 0;
  std::uint32_t source = 0;         // of a mix; else 0
  bool last_record_open = false;    // the last line has no '\n' and is a record
  std::vector<LinesBefore> blocks;  // before block i of this file; one more entry: in the whole file
  std::vector<IndexPoint> index;    // of files that are not lines as they stand; the last: the number of records
  std::string sha256;

  // Lines that stand in the file as they are: all ranks count their ends together. Others are indexed by one rank.
  bool has_plain_lines() const {
    return compression == Compression::kNone && (kind == DataKind::kText || kind == DataKind::kJsonLines);
  }
  // Of lines: one of white space alone is no record. Plain text has empty records.
  bool skips_blank_lines() const { return kind == DataKind::kJsonLines; }
  std::uint64_t num_blocks() const { return (version.bytes + kDataBlockBytes - 1) / kDataBlockBytes; }
  std::uint64_t num_counted_blocks() const { return has_plain_lines() ? num_blocks() : 0; }
  std::uint64_t num_records() const {
    return has_plain_lines() ? blocks.back().records + (last_record_open ? 1 : 0) : index.back().record;
  }
};

// Path, version and kind are set. Errors are the same on every rank. Collective over world.
std::vector<DataFile> list_data_files(const Communicator& world, const DatasetConfig& config);

// Fills the rest. Errors are the same on every rank, and so is Error(kStopped) when poll said on one of them that the job should
// stop. Collective over world.
void scan_data_files(const Communicator& world, std::vector<DataFile>& files, const DatasetConfig& config,
                     const std::function<bool()>& poll);

// Who reads what: the files that a rank hashes, and the blocks [first_block[r], first_block[r + 1]) that rank r counts.
// Hashing costs several times what counting does, so ranks with much to hash count less.
struct ScanShares {
  std::vector<int> hasher;                 // of each file
  std::vector<std::uint64_t> first_block;  // world_size + 1 entries
};
// counted: which files have blocks that are counted; none given: all.
ScanShares share_scan(const std::vector<std::uint64_t>& file_bytes, int world_size,
                      const std::vector<bool>& counted = {});

// The files of a folder that stands in dataset.path: what `datasets` has saved, or a split of a configuration as the Hugging Face
// hub has it (hub_layout.h); else the folder itself, which no reader takes. config and split may be empty. Throws Error(kData) for
// folders that lack files, Error(kConfig) where a configuration must be named or is not there. Local.
std::vector<std::string> files_of_folder(const std::string& folder, const std::string& config,
                                         const std::string& split);
// Whether a file of this name is read as part of a folder: results are named one by one.
bool is_data_file(const std::string& name);
// "jsonl", "csv.gz", ...
std::string format_name(const DataFile& file);
// The path itself where something stands there, else the place of ORG/NAME or ORG/NAME/... in the hub's cache, else the path.
std::string find_dataset(const std::string& path);

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
// A file's first text without its byte order mark. Throws Error(kData) for UTF-16.
std::string_view without_mark(std::string_view line, const std::string& where);

}  // namespace magister
