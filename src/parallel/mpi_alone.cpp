// See mpi_alone.h. Source: ompi_info --all of Open MPI 4.1; version 5 starts no such daemon.
#include "parallel/mpi_alone.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace magister {
namespace {

// Without a daemon all processes would share one session folder, and one of two processes at the same time failed;
// MPI-IO would look for its shared file pointer there.
constexpr std::pair<const char*, const char*> kParameters[] = {
    {"OMPI_MCA_ess_singleton_isolated", "1"}, {"OMPI_MCA_orte_create_session_dirs", "0"}, {"OMPI_MCA_sharedfp", "^sm"}};

// Returns whether a launcher may have started this process: each launcher sets variables with one of these prefixes.
bool launched() {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    for (const std::string_view beginning : {"PMI_", "PMI2_", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_", "SLURM_STEP",
                                             "MV2_COMM_", "MPI_LOCAL", "PALS_", "ALPS_", "FLUX_", "HYDRA_"}) {
      if (text.starts_with(beginning)) return true;
    }
  }
  return false;
}

}  // namespace

AloneWithoutDaemon::AloneWithoutDaemon() {
  if (launched()) return;
  for (const auto& [name, value] : kParameters) {
    if (std::getenv(name) == nullptr && setenv(name, value, 1) == 0) set_.push_back(name);
  }
}

AloneWithoutDaemon::~AloneWithoutDaemon() {
  for (const char* name : set_) unsetenv(name);
}

}  // namespace magister
