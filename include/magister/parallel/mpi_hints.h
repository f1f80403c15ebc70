// MpiHints: MPI_Info for a library that takes MPI's own objects, as HDF5's MPI driver does. What it is given is named here,
// who reads it knows MPI's types from that library's header.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace magister {

class MpiHints {
 public:
  // Names and values as MPI-IO knows them ("striping_factor", "8"); names that an MPI does not know are its to ignore.
  explicit MpiHints(const std::vector<std::pair<std::string, std::string>>& hints);
  ~MpiHints();
  MpiHints(const MpiHints&) = delete;
  MpiHints& operator=(const MpiHints&) = delete;

  const void* info() const;  // an MPI_Info
  // An MPI_Comm with this process alone: a file opened with it is written without waiting for anybody.
  static const void* this_process();
  // The longest name and value that MPI_Info takes, in bytes.
  static std::size_t max_name_bytes();
  static std::size_t max_value_bytes();

 private:
  struct Info;
  std::unique_ptr<Info> info_;
};

}  // namespace magister
