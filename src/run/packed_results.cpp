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

std::optional<TextColumns> measured(std::vector<TextColumn> columns) {
  TextColumns all;
  for (TextColumn& column : columns) {
    if (!measure_texts(column)) return std::nullopt;
    all.specs.push_back(column.spec);
  }
  all.for_each = [columns = std::move(columns)](const TextColumns::Visit& visit) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (!columns[i].for_each([&](std::string text) { visit(i, std::move(text)); })) return false;
    }
    return true;
  };
  return all;
}

namespace {

// Writes the texts of a column in blocks.
class TextBlocks {
 public:
  TextBlocks(ResultsFile& file, std::string path) : file_(&file), path_(std::move(path)) {}
  void add(std::string text) {
    constexpr std::uint64_t kTexts = 4096, kTextBytes = 16 << 20;
    bytes_ += text.size();
    block_.push_back(without_nul(std::move(text)));
    if (block_.size() == kTexts || bytes_ >= kTextBytes) flush();
  }
  void flush() {
    file_->write_texts(path_, row_, block_);
    row_ += block_.size();
    block_.clear();
    bytes_ = 0;
  }

 private:
  ResultsFile* file_;
  std::string path_;
  std::vector<std::string> block_;
  std::uint64_t row_ = 0, bytes_ = 0;
};

}  // namespace

bool write_text_column(const TextColumn& column, ResultsFile& file) {
  TextBlocks blocks(file, column.spec.path);
  const bool all = column.for_each([&](std::string text) { blocks.add(std::move(text)); });
  blocks.flush();
  return all;
}

bool write_text_columns(const TextColumns& columns, ResultsFile& file) {
  if (columns.specs.empty()) return true;
  std::vector<TextBlocks> blocks;
  for (const ColumnSpec& spec : columns.specs) blocks.emplace_back(file, spec.path);
  const bool all = columns.for_each([&](std::size_t column, std::string text) { blocks[column].add(std::move(text)); });
  for (TextBlocks& one : blocks) one.flush();
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
