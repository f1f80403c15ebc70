// Variables that make MPI's start shorter.
#pragma once

#include <vector>

namespace magister {

// During MPI_Init this object sets variables of Open MPI; variables that the user has set stay, and other MPIs ignore
// them. The destructor restores the environment, because an mpirun that this process may start needs the session
// folders. Local.
// - On a host without a fast network: no libraries of such networks. Two of them wait 0.1 s each for their device.
// - Without a launcher: no daemon. Open MPI would start one, which takes half of its start (0.3 of 0.6 s) and serves
//   only processes that are started later.
class MpiVariables {
 public:
  MpiVariables();
  ~MpiVariables();
  MpiVariables(const MpiVariables&) = delete;
  MpiVariables& operator=(const MpiVariables&) = delete;

 private:
  std::vector<const char*> set_;
};

}  // namespace magister
