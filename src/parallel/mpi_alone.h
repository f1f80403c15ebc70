// How MPI starts in a process that no launcher started.
#pragma once

#include <vector>

namespace magister {

// Without a launcher Open MPI starts a daemon beside the process, which takes half of its start (0.3 of 0.6 s) for services to further processes that
// there are not. Around MPI_Init this tells it not to; what the user has set stays. Afterwards the environment is as before, for an mpirun that this
// process may start needs its folders. Other MPIs do not read it. Local.
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
