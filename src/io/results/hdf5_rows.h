// Hdf5Rows: rows of columns that another program (h5repack, h5py) has stored differently: in chunks, through filters,
// inside the metadata. HDF5 reads them, one thread at a time. One row of chunks of each column stays in memory, up to
// kMostChunk.
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

  // Rows [first_row, ...) of a column of numbers or fixed-length strings, with the bytes that a file of ours would
  // have; data is whole rows.
  void read(const PlacedColumn& column, std::uint64_t first_row, std::span<std::byte> data);
  // Calls visit(row, text) for a column of strings of any length, in order.
  void for_each_text(const PlacedColumn& column, IndexRange rows,
                     const std::function<void(std::uint64_t row, std::string_view text)>& visit);

 private:
  struct Column;
  Column& opened(const PlacedColumn& column);

  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace magister
