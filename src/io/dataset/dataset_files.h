// The files of a data set: listed by rank 0 (globs expanded, kinds checked), then scanned by all ranks together for the
// number of lines in every block of 4 MiB and for the sha256 of every file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/dataset/line_reader.h"
#include "magister/io/dataset/dataset.h"

namespace magister {

constexpr std::uint64_t kDataBlockBytes = 4 << 20;

struct DataFile {
  std::string path;
  FileVersion version;
  bool jsonl = false;
  std::uint64_t first_block = 0;  // of the whole data set
  std::uint64_t first_record = 0;
  bool last_line_open = false;             // the last line has no '\n'
  std::vector<std::uint64_t> ends_before;  // line ends before block i of this file; one more entry: in the whole file
  std::string sha256;

  std::uint64_t num_blocks() const { return (version.bytes + kDataBlockBytes - 1) / kDataBlockBytes; }
  std::uint64_t num_records() const { return ends_before.back() + (last_line_open ? 1 : 0); }
};

// Path, version and kind are set. Errors are the same on every rank. Collective over world.
std::vector<DataFile> list_data_files(const Communicator& world, const DatasetConfig& config);

// Fills the rest. Errors are the same on every rank, and so is Error(kStopped) when poll said on one of them that the job should
// stop. Collective over world.
void scan_data_files(const Communicator& world, std::vector<DataFile>& files, const std::function<bool()>& poll);

// Who reads what: the files that a rank hashes, and the blocks [first_block[r], first_block[r + 1]) that rank r counts.
// Hashing costs several times what counting does, so ranks with much to hash count less.
struct ScanShares {
  std::vector<int> hasher;                 // of each file
  std::vector<std::uint64_t> first_block;  // world_size + 1 entries
};
ScanShares share_scan(const std::vector<std::uint64_t>& file_bytes, int world_size);

}  // namespace magister
