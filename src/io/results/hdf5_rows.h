// Hdf5Rows: rows of columns that another program has laid out anew (h5repack, h5py): in chunks, through filters, inside the metadata. HDF5
// reads them, one thread at a time; a chunk of each column stays in memory, up to kMostChunk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "io/results/layout.h"
#include "magister/core/types.h"

namespace magister {

class Hdf5Rows {
 public:
  // Opens the file. Throws Error(kData).
  explicit Hdf5Rows(const std::string& path);
  ~Hdf5Rows();

  // Rows [first_row, ...) of a column of numbers or of strings of one length, as they would stand in a file of ours; data is whole rows of it.
  void read(const PlacedColumn& column, std::uint64_t first_row, std::span<std::byte> data);
  // visit(row, text) of a column of strings of any length, in order.
  void for_each_text(const PlacedColumn& column, IndexRange rows,
                     const std::function<void(std::uint64_t row, std::string_view text)>& visit);

 private:
  struct Column;
  Column& opened(const PlacedColumn& column);

  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace magister
