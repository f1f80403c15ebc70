// Texts of any length in a dataset of HDF5's variable-length strings: per row a descriptor of 16 bytes (u32 length, u64
// address of a collection, u32 number of the object in it), and the bytes in collections of the file's global heap.
// HDF5 itself writes them (TextHeapWriter); they are read as plain bytes (TextHeap), every address and size checked
// against the file.
// Source: HDF5 File Format Specification, III.E "Global Heap" and IV.B "Variable-length data".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/results/columns.h"

namespace magister {

// Appends texts to one column of a file that HDF5 has not opened otherwise. Equal texts in equal order give equal
// bytes.
class TextHeapWriter {
 public:
  TextHeapWriter(const std::string& path, const std::string& column);
  ~TextHeapWriter();  // without close(): the texts may be missing
  // Writes rows [first_row, first_row + texts.size()). A text must not contain NUL (HDF5's strings end there):
  // Error(kInternal).
  void write(std::uint64_t first_row, std::span<const std::string> texts);
  void close();

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

// Reads texts of one column; with ascending rows each collection is read once. One thread.
class TextHeap {
 public:
  TextHeap(const ResultsColumns& columns, const PlacedColumn& column) : columns_(columns), column_(column) {}
  // Calls visit(row, text) for each row, in order. Also for fixed-length columns, without their padding.
  void for_each(IndexRange rows, const std::function<void(std::uint64_t row, std::string_view text)>& visit);
  std::string text(std::uint64_t row);

 private:
  struct Object {
    std::uint64_t offset = 0, size = 0;  // place and size of its bytes in the file
  };
  std::string_view read_text(std::uint64_t row, std::span<const std::byte> descriptor);
  void open_collection(std::uint64_t address, std::uint64_t row);
  [[noreturn]] void fail_at(std::uint64_t row, const std::string& why) const;

  const ResultsColumns& columns_;
  const PlacedColumn& column_;
  std::uint64_t address_ = 0;  // of the open collection; 0: none
  std::map<std::uint32_t, Object> objects_;
  std::vector<std::byte> collection_;  // its bytes, if it is at most kMostInMemory long
  std::string text_;
};

}  // namespace magister
