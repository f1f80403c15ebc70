// ResultsReader: opens a results file, complete or partial, whose content is not trusted yet. Everything it returns was
// checked for type and place; the schema of its task (schema.h) checks the values. Local. Any thread may read; the
// constructor calls HDF5, which must be called from one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/results_file.h"

namespace magister {

class ResultsColumns;  // src/io/results/columns.h
class TextHeap;        // src/io/results/text_heap.h

class ResultsReader {
 public:
  // Throws Error(kInputOutput) if there is no regular file, Error(kData) if it is not a results file.
  explicit ResultsReader(const std::string& path);
  ~ResultsReader();
  ResultsReader(ResultsReader&&) noexcept;
  ResultsReader& operator=(ResultsReader&&) noexcept;

  const std::string& path() const;
  const Attributes& attributes() const;                            // of the root
  const AttributeValue* attribute(const std::string& name) const;  // null: no such attribute
  // Root attributes; throw Error(kData) when absent or of another type.
  const std::string& text(const std::string& name) const;
  std::uint64_t number(const std::string& name) const;
  bool complete() const;

  std::uint64_t num_samples() const;
  const ColumnSpec* find(const std::string& column) const;  // null: no such column
  // Throws Error(kData) when it is absent or of another type.
  const ColumnSpec& column(const std::string& path, ColumnType type) const;
  template <typename T>
  const ColumnSpec* find(const Column<T>& column) const {
    return find(column.path);
  }
  template <typename T>
  const ColumnSpec& column(const Column<T>& wanted) const {
    return column(wanted.path, Column<T>::kType);
  }
  // Reads rows [first_row, ...) of a column; data is whole rows. Throws Error(kData) for a missing column or rows
  // beyond its end.
  void read(const std::string& column, std::uint64_t first_row, std::span<std::byte> data) const;
  // T has the size of a row.
  template <typename T>
  std::vector<T> rows(const std::string& column, std::uint64_t first_row, std::uint64_t count) const {
    std::vector<T> values(count);
    read(column, first_row, std::as_writable_bytes(std::span(values)));
    return values;
  }
  template <typename T>
  std::vector<T> rows(const Column<T>& column, std::uint64_t first_row, std::uint64_t count) const {
    return rows<T>(column.path, first_row, count);
  }
  // `count` rows of `width` numbers.
  template <typename T>
  std::vector<T> rows(const Column<T>& column, std::uint64_t first_row, std::uint64_t count,
                      std::uint64_t width) const {
    std::vector<T> values(count * width);
    read(column.path, first_row, std::as_writable_bytes(std::span(values)));
    return values;
  }
  // Calls visit(first row, bytes of some whole rows) in order, in pieces of about 1 MiB.
  void for_each_piece(const std::string& column, IndexRange rows,
                      const std::function<void(std::uint64_t first, std::span<const std::byte> bytes)>& visit) const;
  // Calls visit(row, text) for a column of strings; padding of fixed-length strings is removed.
  void for_each_text(const std::string& column, IndexRange rows,
                     const std::function<void(std::uint64_t row, std::string_view text)>& visit) const;

  // For the tools in io.
  const ResultsColumns& columns() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Strings of a column by row; ascending rows are read fastest. One thread. Keeps a reference to `file`.
class ResultsTextColumn {
 public:
  ResultsTextColumn(const ResultsReader& file, const std::string& column);
  ~ResultsTextColumn();
  std::string text(std::uint64_t row);

 private:
  std::unique_ptr<TextHeap> heap_;
};

// nullptr if there is no attribute of that name.
const AttributeValue* find_attribute(const Attributes& attributes, const std::string& name);

// `count` values of an f32 or f16 column as f32.
void to_floats(ColumnType type, std::span<const std::byte> bytes, std::vector<float>& values);

}  // namespace magister
