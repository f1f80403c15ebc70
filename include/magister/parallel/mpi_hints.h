// MpiHints: MPI_Info for a library that takes MPI objects, as HDF5's MPI driver does. MPI types are passed as void
// pointers; the caller knows them from that library's header.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace magister {

class MpiHints {
 public:
  // Names and values as MPI-IO defines them ("striping_factor", "8"). An MPI ignores names that it does not know.
  explicit MpiHints(const std::vector<std::pair<std::string, std::string>>& hints);
  ~MpiHints();
  MpiHints(const MpiHints&) = delete;
  MpiHints& operator=(const MpiHints&) = delete;

  const void* info() const;  // points to an MPI_Info
  // Points to an MPI_Comm with only this process: a file opened with it is written without waiting for other ranks.
  static const void* this_process();
  // Maximum length of names and values of MPI_Info, in bytes.
  static std::size_t max_name_bytes();
  static std::size_t max_value_bytes();

 private:
  struct Info;
  std::unique_ptr<Info> info_;
};

}  // namespace magister
