// The files of a data set. Rank 0 lists them (expands globs, checks kinds). Then all ranks together scan them for the
// number of records and lines in every block of 4 MiB, or for another format's index, and for every file's sha256.
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

// The beginning of a record: its number in the file, and what the file's format needs to find it (a byte, a line, a row
// group).
struct IndexPoint {
  std::uint64_t record = 0, place = 0, line = 0;
};

// For a file of lines: the records and the lines that end before a block.
struct LinesBefore {
  std::uint64_t records = 0, lines = 0;
};

struct DataFile {
  std::string path;
  FileVersion version;
  DataKind kind = DataKind::kText;
  Compression compression = Compression::kNone;
  std::uint64_t first_block = 0;  // index in the data set's list of counted blocks
  std::uint64_t first_record = 0;
  std::uint32_t source = 0;         // source of a mix; else 0
  bool last_record_open = false;    // the last line is a record without '\n'
  std::vector<LinesBefore> blocks;  // counts before block i of this file; one more entry: of the whole file
  std::vector<IndexPoint> index;    // for files without plain lines; the last point gives the number of records
  std::string sha256;

  // True for uncompressed lines, whose ends all ranks count together. One rank indexes each other file.
  bool has_plain_lines() const {
    return compression == Compression::kNone && (kind == DataKind::kText || kind == DataKind::kJsonLines);
  }
  // True: a line of white space only is no record. In plain text it is an empty record.
  bool skips_blank_lines() const { return kind == DataKind::kJsonLines; }
  std::uint64_t num_blocks() const { return (version.bytes + kDataBlockBytes - 1) / kDataBlockBytes; }
  std::uint64_t num_counted_blocks() const { return has_plain_lines() ? num_blocks() : 0; }
  std::uint64_t num_records() const {
    return has_plain_lines() ? blocks.back().records + (last_record_open ? 1 : 0) : index.back().record;
  }
};

// Sets path, version and kind. Errors are the same on every rank. Collective over world.
std::vector<DataFile> list_data_files(const Communicator& world, const DatasetConfig& config);

// Sets the other fields. Errors are the same on every rank; so is Error(kStopped) if poll returns true on one of them.
// Collective over world.
void scan_data_files(const Communicator& world, std::vector<DataFile>& files, const DatasetConfig& config,
                     const std::function<bool()>& poll);

// The distribution of a scan: the files that each rank hashes; rank r counts blocks [first_block[r], first_block[r +
// 1]). Hashing costs several times as much as counting, so ranks with much to hash count less.
struct ScanShares {
  std::vector<int> hasher;                 // rank that hashes each file
  std::vector<std::uint64_t> first_block;  // world_size + 1 entries
};
// counted: for each file, whether its blocks are counted; empty: all are.
ScanShares share_scan(const std::vector<std::uint64_t>& file_bytes, int world_size,
                      const std::vector<bool>& counted = {});

// The files of a folder in dataset.path: one that `datasets` has saved, or a split of a configuration in the layout of
// the Hugging Face Hub (hub_layout.h). Otherwise the folder itself, which no reader accepts. config and split may be
// empty. Throws Error(kData) for folders with missing files, Error(kConfig) if a configuration must be named or does
// not exist. Local.
std::vector<std::string> files_of_folder(const std::string& folder, const std::string& config,
                                         const std::string& split);
// True if a file of this name is read as part of a folder; results files must be named individually.
bool is_data_file(const std::string& name);
// "jsonl", "csv.gz", ...
std::string format_name(const DataFile& file);
// The path itself if it exists, else the path of ORG/NAME or ORG/NAME/... in the Hub's cache, else the path unchanged.
// Throws Error(kInputOutput) for ORG/NAME that is not in the cache and cannot be a path.
std::string find_dataset(const std::string& path);

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
// A file's first line without its byte order mark. Throws Error(kData) for UTF-16.
std::string_view without_mark(std::string_view line, const std::string& where);

}  // namespace magister
