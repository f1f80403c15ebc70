// MPI's start in a process without a launcher.
#pragma once

#include <vector>

namespace magister {

// Without a launcher, Open MPI starts a daemon, which takes half of its start (0.3 of 0.6 s) and serves only processes
// that are started later. During MPI_Init this object sets variables that prevent the daemon; variables that the user
// has set stay. The destructor restores the environment, because an mpirun that this process may start needs the
// session folders. Other MPIs ignore the variables. Local.
class AloneWithoutDaemon {
 public:
  AloneWithoutDaemon();
  ~AloneWithoutDaemon();
  AloneWithoutDaemon(const AloneWithoutDaemon&) = delete;
  AloneWithoutDaemon& operator=(const AloneWithoutDaemon&) = delete;

 private:
  std::vector<const char*> set_;
};

}  // namespace magister
