// Copies rows in pieces of at most 4 MiB and commits units in groups that share one fdatasync.
#include "magister/run/packed_results.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "magister/core/utf8.h"
#include "magister/io/results/text_heap_bytes.h"

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

bool measure_texts(TextColumn& column) {
  TextHeapBytes heap;
  if (!column.for_each([&heap](std::string text) { heap.add(without_nul(std::move(text)).size()); })) return false;
  column.spec.heap_bytes = heap.bytes();
  return true;
}

bool write_text_column(const TextColumn& column, ResultsFile& file) {
  constexpr std::uint64_t kBlockTexts = 4096, kBlockTextBytes = 16 << 20;
  std::vector<std::string> block;
  std::uint64_t row = 0, bytes = 0;
  const auto flush = [&] {
    file.write_texts(column.spec.path, row, block);
    row += block.size();
    block.clear();
    bytes = 0;
  };
  const bool all = column.for_each([&](std::string text) {
    bytes += text.size();
    block.push_back(without_nul(std::move(text)));
    if (block.size() == kBlockTexts || bytes >= kBlockTextBytes) flush();
  });
  flush();
  return all;
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
