// Chooses the reader of a file by its kind, which dataset_list.cpp finds by the end of the file's name.
#include "io/dataset/record_format.h"

#include <algorithm>

namespace magister {

std::unique_ptr<RecordFormat> open_format(const DataFile& file, const DatasetConfig& config) {
  if (file.has_plain_lines()) return open_lines(file, config);
  if (file.kind == DataKind::kParquet || file.kind == DataKind::kArrow) return open_table(file, config);
  if (file.kind == DataKind::kResults) return open_hdf5(file, config);
  return open_stream(file, config);
}

const IndexPoint& point_before(const std::vector<IndexPoint>& index, std::uint64_t record) {
  const auto after =
      std::upper_bound(index.begin(), index.end() - 1, record,
                       [](std::uint64_t value, const IndexPoint& point) { return value < point.record; });
  return *(after - 1);
}

}  // namespace magister
