// Scanning: one pass over the blocks that a rank hashes, counts or both. A file without plain lines is hashed and
// indexed by one rank. Source: sha256sum for the form of the combined digest's lines.
#include "io/dataset/dataset_files.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "io/dataset/newlines.h"
#include "io/dataset/record_format.h"
#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/io/agreed_errors.h"

namespace magister {
namespace {

// Packs a block's LinesOfPiece into 64 bits: a block has at most 2^22 line ends.
constexpr int kRecordsShift = 24;
constexpr std::uint64_t kCountMask = (1u << kRecordsShift) - 1, kBeginsBit = 1ull << 62, kEndsOpenBit = 1ull << 63;

std::uint64_t packed_lines(const LinesOfPiece& lines) {
  return lines.ends | (lines.records << kRecordsShift) | (lines.begins ? kBeginsBit : 0) |
         (lines.ends_open ? kEndsOpenBit : 0);
}

LinesOfPiece unpacked_lines(std::uint64_t bits) {
  return {bits & kCountMask, (bits >> kRecordsShift) & kCountMask, (bits & kBeginsBit) != 0,
          (bits & kEndsOpenBit) != 0};
}

void append(std::string& bytes, const void* from, std::size_t size) {
  bytes.append(static_cast<const char*>(from), size);
}

// One rank's part of a scan.
class Scan {
 public:
  Scan(const std::vector<DataFile>& files, const ScanShares& shares, const DatasetConfig& config, int rank,
       const std::function<bool()>& poll)
      : files_(files),
        shares_(shares),
        config_(config),
        rank_(rank),
        poll_(poll),
        first_(shares.first_block[static_cast<std::size_t>(rank)]),
        counts_(shares.first_block[static_cast<std::size_t>(rank) + 1] - first_),
        buffer_(kDataBlockBytes) {}

  void run() {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const bool hashes = shares_.hasher[i] == rank_;
      const std::uint64_t begin = files_[i].first_block, end = begin + files_[i].num_counted_blocks();
      if (hashes || (begin < first_ + counts_.size() && first_ < end)) read(files_[i], hashes);
      if (hashes) make_index(files_[i]);
    }
  }

  const std::vector<std::uint64_t>& counts() const { return counts_; }
  // For the files that this rank hashes, in order, 64 characters each.
  const std::string& digests() const { return digests_; }
  // For the same files: number of index points, then the points.
  const std::string& indexes() const { return indexes_; }

 private:
  bool counts(const DataFile& file, std::uint64_t block) const {
    const std::uint64_t place = file.first_block + block;
    return file.has_plain_lines() && place >= first_ && place - first_ < counts_.size();
  }

  void stop_if_asked() const {
    if (poll_ && poll_()) throw Error(ExitCode::kStopped, "stopped");
  }

  void make_index(const DataFile& file) {
    std::vector<IndexPoint> index;
    if (!file.has_plain_lines()) index = open_format(file, config_)->index([this] { return poll_ && poll_(); });
    const std::uint64_t count = index.size();
    append(indexes_, &count, sizeof count);
    append(indexes_, index.data(), index.size() * sizeof(IndexPoint));
  }

  void read(const DataFile& file, bool hashes) {
    const LineReader reader(file.path);
    reader.require(file.version);
    Sha256 hash;
    for (std::uint64_t block = 0; block < file.num_blocks(); ++block) {
      if (!hashes && !counts(file, block)) continue;
      stop_if_asked();
      const std::uint64_t offset = block * kDataBlockBytes;
      const std::size_t size = std::min(kDataBlockBytes, file.version.bytes - offset);
      const std::size_t n = reader.read_at(offset, {buffer_.data(), size});
      MAGISTER_CHECK(n == size, ExitCode::kInputOutput,
                     "{}: became shorter while it was read (records would be lost); leave the "
                     "data alone during a run",
                     printable(file.path));
      std::string_view bytes(buffer_.data(), n);
      if (hashes) hash.update(bytes);
      if (!counts(file, block)) continue;
      if (block == 0 && file.skips_blank_lines() && bytes.starts_with(kByteOrderMark))
        bytes.remove_prefix(kByteOrderMark.size());
      counts_[file.first_block + block - first_] = packed_lines(count_lines(bytes, file.skips_blank_lines()));
    }
    if (hashes) digests_ += hash.hex();
  }

  const std::vector<DataFile>& files_;
  const ScanShares& shares_;
  const DatasetConfig& config_;
  const int rank_;
  const std::function<bool()>& poll_;
  const std::uint64_t first_;
  std::vector<std::uint64_t> counts_;
  std::vector<char> buffer_;
  std::string digests_, indexes_;
};

// Adds a file's next block, whose first line may have begun in earlier blocks.
void add_block(DataFile& file, const LinesOfPiece& lines) {
  LinesBefore after = file.blocks.back();
  const bool first_is_record = file.last_record_open || lines.begins;
  after.lines += lines.ends;
  after.records += lines.ends == 0 ? 0 : lines.records + (first_is_record ? 1 : 0);
  file.last_record_open = lines.ends == 0 ? first_is_record : lines.ends_open;
  file.blocks.push_back(after);
}

// Removes one file's index from the front of `bytes`.
std::vector<IndexPoint> next_index(std::string_view& bytes) {
  std::uint64_t count = 0;
  std::memcpy(&count, bytes.data(), sizeof count);
  std::vector<IndexPoint> index(count);
  if (count > 0) std::memcpy(index.data(), bytes.data() + sizeof count, count * sizeof(IndexPoint));
  bytes.remove_prefix(sizeof count + count * sizeof(IndexPoint));
  return index;
}

}  // namespace

ScanShares share_scan(const std::vector<std::uint64_t>& file_bytes, int world_size, const std::vector<bool>& counted) {
  constexpr std::uint64_t kHashCost = 4;  // bytes counted in the time of hashing one byte (8 against 1.9 GB/s)
  const auto size = static_cast<std::size_t>(world_size);
  ScanShares shares;
  shares.hasher.resize(file_bytes.size());
  std::vector<std::size_t> order(file_bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return file_bytes[a] > file_bytes[b]; });
  std::set<std::pair<std::uint64_t, std::size_t>> loads;  // work in blocks, rank
  for (std::size_t rank = 0; rank < size; ++rank) loads.emplace(0, rank);
  std::uint64_t num_blocks = 0;
  for (const std::size_t i : order) {
    const std::uint64_t blocks = (file_bytes[i] + kDataBlockBytes - 1) / kDataBlockBytes;
    const auto [load, rank] = *loads.begin();
    loads.erase(loads.begin());
    loads.emplace(load + kHashCost * blocks, rank);
    shares.hasher[i] = static_cast<int>(rank);
    num_blocks += counted.empty() || counted[i] ? blocks : 0;
  }
  // Distributes the blocks to count so that all ranks reach one common level of work, the least loaded first.
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

void scan_data_files(const Communicator& world, std::vector<DataFile>& files, const DatasetConfig& config,
                     const std::function<bool()>& poll) {
  std::vector<std::uint64_t> file_bytes;
  std::vector<bool> counted;
  std::uint64_t num_blocks = 0;
  for (DataFile& file : files) {
    file_bytes.push_back(file.version.bytes);
    counted.push_back(file.has_plain_lines());
    file.first_block = num_blocks;
    num_blocks += file.num_counted_blocks();
  }
  const ScanShares shares = share_scan(file_bytes, world.size(), counted);
  Scan scan(files, shares, config, world.rank(), poll);
  run_agreed(world, [&] { scan.run(); });

  std::string mine;
  append(mine, scan.counts().data(), scan.counts().size() * sizeof(std::uint64_t));
  std::string all;  // each rank counts a contiguous run of blocks, in the order of ranks
  for (const std::string& part : world.all_gather(mine)) all += part;
  const std::vector<std::string> digests = world.all_gather(scan.digests());
  const std::vector<std::string> indexes = world.all_gather(scan.indexes());
  std::vector<std::string_view> index_bytes(indexes.begin(), indexes.end());
  std::vector<std::size_t> taken(digests.size(), 0);
  std::uint64_t record = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    DataFile& file = files[i];
    const auto hasher = static_cast<std::size_t>(shares.hasher[i]);
    file.sha256 = digests[hasher].substr(64 * taken[hasher]++, 64);
    file.index = next_index(index_bytes[hasher]);
    file.blocks.assign(1, {});
    for (std::uint64_t block = 0; block < file.num_counted_blocks(); ++block) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, all.data() + (file.first_block + block) * sizeof bits, sizeof bits);
      add_block(file, unpacked_lines(bits));
    }
    file.first_record = record;
    record += file.num_records();
  }
}

}  // namespace magister
