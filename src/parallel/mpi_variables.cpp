// See mpi_variables.h. Sources: ompi_info --all of Open MPI 4.1 (version 5 starts no such daemon); strace of libpsm2
// and libpsm, which wait for their devices.
#include "parallel/mpi_variables.h"

#include <dirent.h>
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
// The libraries of networks with matching in hardware. The value replaces that of a configuration file, which may
// exclude ofi alone.
constexpr std::pair<const char*, const char*> kNoMatchingNetworks = {"OMPI_MCA_mtl", "^psm,psm2,ofi"};

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

// Returns whether this host may have a network other than Ethernet: a device file with one of these beginnings
// (InfiniBand and EFA, Omni-Path, True Scale, Slingshot, Aries, BXI, usNIC).
bool may_have_fast_network() {
  DIR* const folder = ::opendir("/dev");
  if (folder == nullptr) return true;
  bool found = false;
  while (const dirent* entry = ::readdir(folder)) {
    for (const std::string_view beginning : {"infiniband", "hfi", "ipath", "cxi", "kgni", "bxi", "usnic"})
      found = found || std::string_view(entry->d_name).starts_with(beginning);
  }
  ::closedir(folder);
  return found;
}

}  // namespace

MpiVariables::MpiVariables() {
  const auto set = [this](const std::pair<const char*, const char*>& parameter) {
    if (std::getenv(parameter.first) == nullptr && setenv(parameter.first, parameter.second, 1) == 0)
      set_.push_back(parameter.first);
  };
  if (!may_have_fast_network()) set(kNoMatchingNetworks);
  if (launched()) return;
  for (const auto& parameter : kParameters) set(parameter);
}

MpiVariables::~MpiVariables() {
  for (const char* name : set_) unsetenv(name);
}

}  // namespace magister
