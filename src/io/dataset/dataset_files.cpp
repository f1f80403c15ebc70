// Listing: globs in byte order of their matches, whatever the locale. Scanning: one pass over the blocks that a rank both
// hashes and counts. Source: glob(7); sha256sum for the form of the combined digest's lines.
#include "io/dataset/dataset_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>
#include <span>

#include "io/dataset/newlines.h"
#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/io/agreed_errors.h"

namespace magister {
namespace {

constexpr std::uint32_t kLastLineOpen = 0x80000000u;  // a block has at most 2^22 line ends

std::vector<std::string> expand(const std::string& pattern) {
  struct stat status{};
  if (::lstat(pattern.c_str(), &status) == 0 || pattern.find_first_of("*?[") == std::string::npos) return {pattern};
  glob_t found{};
  const int outcome = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  const int error = errno;
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (outcome == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  MAGISTER_CHECK(outcome == 0 || outcome == GLOB_NOMATCH, ExitCode::kInputOutput,
                 "{}: the folders of this pattern cannot be read ({}); check their permissions", printable(pattern),
                 std::strerror(error));
  MAGISTER_CHECK(!paths.empty(), ExitCode::kInputOutput,
                 "{}: no file matches (there is nothing to read); check "
                 "dataset.path",
                 printable(pattern));
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string lower_extension(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension;
}

DataFile examine(const std::string& path, const DatasetConfig& config) {
  DataFile file;
  file.path = path;
  const std::string extension = lower_extension(path);
  file.jsonl = extension == ".jsonl";
  struct stat status{};
  const bool is_folder = ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  MAGISTER_CHECK(
      file.jsonl || extension == ".txt" || is_folder, ExitCode::kConfig,
      "{}: files that end in \"{}\" are not read as data sets (.jsonl and .txt are, Parquet and HDF5 not yet); convert "
      "the file or name another",
      printable(path), printable(extension));
  MAGISTER_CHECK(
      file.jsonl || is_folder || (config.tokens_field.empty() && config.key_field.empty() && !config.whole_record),
      ExitCode::kConfig,
      "{}: plain text has no fields (dataset.tokens, dataset.messages, dataset.key or the task names one); use .jsonl "
      "or leave them out",
      printable(path));
  file.version = LineReader(path).version();
  return file;
}

void append(std::string& bytes, const void* from, std::size_t size) {
  bytes.append(static_cast<const char*>(from), size);
}

// The list as bytes for the other ranks: kind, version, path, NUL.
std::string packed(const std::vector<DataFile>& files) {
  std::string bytes;
  for (const DataFile& file : files) {
    bytes += file.jsonl ? 'j' : 't';
    append(bytes, &file.version, sizeof file.version);
    append(bytes, file.path.c_str(), file.path.size() + 1);
  }
  return bytes;
}

std::vector<DataFile> unpacked(const std::string& bytes) {
  std::vector<DataFile> files;
  for (std::size_t at = 0; at < bytes.size();) {
    DataFile& file = files.emplace_back();
    file.jsonl = bytes[at++] == 'j';
    std::memcpy(&file.version, bytes.data() + at, sizeof file.version);
    file.path = bytes.c_str() + at + sizeof file.version;
    at += sizeof file.version + file.path.size() + 1;
  }
  return files;
}

void warn_of_repeats(const std::vector<DataFile>& files) {
  std::set<std::string> seen;
  for (const DataFile& file : files) {
    if (!seen.insert(file.path).second) {
      log_warning("{}: is named twice in dataset.path; its records are read twice", printable(file.path));
    }
  }
}

// The part of one rank in a scan.
class Scan {
 public:
  Scan(const std::vector<DataFile>& files, const ScanShares& shares, int rank, const std::function<bool()>& poll)
      : files_(files),
        shares_(shares),
        rank_(rank),
        poll_(poll),
        first_(shares.first_block[static_cast<std::size_t>(rank)]),
        counts_(shares.first_block[static_cast<std::size_t>(rank) + 1] - first_),
        buffer_(kDataBlockBytes) {}

  void run() {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const bool hashes = shares_.hasher[i] == rank_;
      const std::uint64_t begin = files_[i].first_block, end = begin + files_[i].num_blocks();
      if (hashes || (begin < first_ + counts_.size() && first_ < end)) read(files_[i], hashes);
    }
  }

  const std::vector<std::uint32_t>& counts() const { return counts_; }
  const std::string& digests() const { return digests_; }  // of this rank's files in order, 64 characters each

 private:
  bool counts(std::uint64_t block) const { return block >= first_ && block - first_ < counts_.size(); }

  void read(const DataFile& file, bool hashes) {
    const LineReader reader(file.path);
    reader.require(file.version);
    Sha256 hash;
    for (std::uint64_t block = 0; block < file.num_blocks(); ++block) {
      if (!hashes && !counts(file.first_block + block)) continue;
      if (poll_ && poll_()) throw Error(ExitCode::kStopped, "stopped");
      const std::uint64_t offset = block * kDataBlockBytes;
      const std::size_t size = std::min(kDataBlockBytes, file.version.bytes - offset);
      const std::size_t n = reader.read_at(offset, {buffer_.data(), size});
      MAGISTER_CHECK(n == size, ExitCode::kInputOutput,
                     "{}: became shorter while it was read (records would be lost); leave the "
                     "data alone during a run",
                     printable(file.path));
      const std::string_view bytes(buffer_.data(), n);
      if (hashes) hash.update(bytes);
      if (!counts(file.first_block + block)) continue;
      const bool open = block + 1 == file.num_blocks() && bytes.back() != '\n';
      counts_[file.first_block + block - first_] =
          static_cast<std::uint32_t>(count_newlines(bytes)) | (open ? kLastLineOpen : 0u);
    }
    if (hashes) digests_ += hash.hex();
  }

  const std::vector<DataFile>& files_;
  const ScanShares& shares_;
  const int rank_;
  const std::function<bool()>& poll_;
  const std::uint64_t first_;
  std::vector<std::uint32_t> counts_;
  std::vector<char> buffer_;
  std::string digests_;
};

}  // namespace

std::vector<DataFile> list_data_files(const Communicator& world, const DatasetConfig& config) {
  std::string bytes;
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    MAGISTER_CHECK(!config.paths.empty(), ExitCode::kConfig,
                   "dataset.path names no file (there is nothing to read); name one");
    std::vector<DataFile> files;
    for (const std::string& pattern : config.paths) {
      MAGISTER_CHECK(!pattern.empty() && pattern.find('\0') == std::string::npos, ExitCode::kConfig,
                     "dataset.path holds an empty path or a NUL character (no file has such a name); remove it");
      for (const std::string& path : expand(pattern)) files.push_back(examine(path, config));
    }
    warn_of_repeats(files);
    bytes = packed(files);
  });
  world.broadcast(bytes, 0);
  return unpacked(bytes);
}

ScanShares share_scan(const std::vector<std::uint64_t>& file_bytes, int world_size) {
  constexpr std::uint64_t kHashCost = 4;  // bytes counted in the time of one byte hashed (1.9 against 8 GB/s)
  const auto size = static_cast<std::size_t>(world_size);
  ScanShares shares;
  shares.hasher.resize(file_bytes.size());
  std::vector<std::size_t> order(file_bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return file_bytes[a] > file_bytes[b]; });
  std::set<std::pair<std::uint64_t, std::size_t>> loads;  // blocks' worth of work, rank
  for (std::size_t rank = 0; rank < size; ++rank) loads.emplace(0, rank);
  std::uint64_t num_blocks = 0;
  for (const std::size_t i : order) {
    const std::uint64_t blocks = (file_bytes[i] + kDataBlockBytes - 1) / kDataBlockBytes;
    const auto [load, rank] = *loads.begin();
    loads.erase(loads.begin());
    loads.emplace(load + kHashCost * blocks, rank);
    shares.hasher[i] = static_cast<int>(rank);
    num_blocks += blocks;
  }
  // Blocks to count fill the ranks up to one common level, the emptiest first.
  std::vector<std::uint64_t> quota(size, 0);
  std::uint64_t left = num_blocks, level = 0, filled = 0;
  for (auto next = loads.begin(); next != loads.end();) {
    level = next->first;
    while (next != loads.end() && next->first == level) ++filled, ++next;
    const std::uint64_t room = next == loads.end() ? left : std::min(left, (next->first - level) * filled);
    std::uint64_t rank_in_order = 0;
    for (auto each = loads.begin(); rank_in_order < filled; ++each, ++rank_in_order) {
      quota[each->second] += room * (rank_in_order + 1) / filled - room * rank_in_order / filled;
    }
    left -= room;
  }
  shares.first_block.assign(1, 0);
  for (std::size_t rank = 0; rank < size; ++rank) shares.first_block.push_back(shares.first_block.back() + quota[rank]);
  return shares;
}

void scan_data_files(const Communicator& world, std::vector<DataFile>& files, const std::function<bool()>& poll) {
  std::vector<std::uint64_t> file_bytes;
  std::uint64_t num_blocks = 0;
  for (DataFile& file : files) {
    file_bytes.push_back(file.version.bytes);
    file.first_block = num_blocks;
    num_blocks += file.num_blocks();
  }
  const ScanShares shares = share_scan(file_bytes, world.size());
  Scan scan(files, shares, world.rank(), poll);
  run_agreed(world, [&] { scan.run(); });

  std::string mine;
  append(mine, scan.counts().data(), scan.counts().size() * sizeof(std::uint32_t));
  std::string all;  // ranks count runs of blocks in order
  for (const std::string& part : world.all_gather(mine)) all += part;
  const std::vector<std::string> digests = world.all_gather(scan.digests());
  std::vector<std::size_t> taken(digests.size(), 0);
  std::uint64_t record = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    DataFile& file = files[i];
    const auto hasher = static_cast<std::size_t>(shares.hasher[i]);
    file.sha256 = digests[hasher].substr(64 * taken[hasher]++, 64);
    file.ends_before.assign(1, 0);
    for (std::uint64_t block = 0; block < file.num_blocks(); ++block) {
      std::uint32_t count = 0;
      std::memcpy(&count, all.data() + (file.first_block + block) * sizeof count, sizeof count);
      file.ends_before.push_back(file.ends_before.back() + (count & ~kLastLineOpen));
      file.last_line_open = (count & kLastLineOpen) != 0;
    }
    file.first_record = record;
    record += file.num_records();
  }
}

}  // namespace magister
