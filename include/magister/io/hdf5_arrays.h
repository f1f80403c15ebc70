// Hdf5Arrays: a new HDF5 file of plain arrays, for programs that read a layout of their own. It is written as
// <path>.creating, which the destructor removes unless keep() has renamed it: complete or absent. What is not written
// stays zero and takes no space if the file system supports holes. Local, one process; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "magister/io/results/results_file.h"

namespace magister {

class Hdf5Arrays {
 public:
  // Error(kInputOutput) if there is something at `path`, even a broken link. A regular <path>.creating that a killed
  // export left is removed.
  explicit Hdf5Arrays(const std::string& path);
  ~Hdf5Arrays();
  Hdf5Arrays(const Hdf5Arrays&) = delete;
  Hdf5Arrays& operator=(const Hdf5Arrays&) = delete;

  // Adds an array of numbers; returns its index for write().
  std::size_t add(const char* name, ColumnType type, std::span<const std::uint64_t> shape);
  // Writes a box of an array: values in row-major order, of the array's type. place and count: one entry a dimension.
  void write(std::size_t array, std::span<const std::uint64_t> place, std::span<const std::uint64_t> count,
             std::span<const std::byte> values);
  // Closes, syncs and renames.
  void keep();

  // Error(kInputOutput) if there is something at `path`.
  static void refuse_existing(const std::string& path);

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

}  // namespace magister
