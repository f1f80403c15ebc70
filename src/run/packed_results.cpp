// Copies rows in pieces of at most 4 MiB and commits units in groups that share one fdatasync.
#include "magister/run/packed_results.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace magister {

bool copy_column(const ResultsFile& from, ResultsFile& to, const std::string& column, std::uint64_t num_rows,
                 const StopPoll& poll) {
  constexpr std::uint64_t kPieceBytes = 4 << 20;
  const std::uint64_t row_bytes = from.row_bytes(column), most = std::max<std::uint64_t>(1, kPieceBytes / row_bytes);
  std::vector<std::byte> piece;
  for (std::uint64_t first = 0; first < num_rows; first += most) {
    if (poll()) return false;
    piece.resize(std::min(most, num_rows - first) * row_bytes);
    from.read(column, first, piece);
    to.write(column, first, piece);
  }
  return true;
}

void commit_all(ResultsFile& file) {
  constexpr std::size_t kUnitsACommit = 1024;
  std::vector<Unit> units;
  for (const std::uint64_t index : file.pending_units()) {
    units.push_back(file.unit(index));
    if (units.size() < kUnitsACommit) continue;
    file.commit(units);
    units.clear();
  }
  file.commit(units);
}

}  // namespace magister
