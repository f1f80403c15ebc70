// Libraries that report a version at run time are asked, because the loaded version counts, not the one at compile
// time. For the others the version is the one of their headers or the one that CMake found (MAGISTER_BUILT_WITH: "name
// version|name version").
#include "magister/run/versions.h"

#include <ATen/Version.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/layout.h"

namespace magister {

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::vector<std::pair<std::string, std::string>> versions = {
      {"mpi", mpi_library_version()},
      {"libtorch", TORCH_VERSION},
      {"mkl", at::get_mkl_version()},
      {"onednn", at::get_mkldnn_version()},
      {"cpu", cpu_features()},
      {"cpu_kernels", cpu_kernels().name},
      {"cuda_runtime", cuda_runtime_version()},
      {"cuda_driver", cuda_driver_version()},
      {"nccl", nccl_version()},
      {"nlohmann_json",
       fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
  };
  const std::string built_with = MAGISTER_BUILT_WITH;
  for (std::size_t begin = 0; begin < built_with.size();) {
    const std::size_t end = std::min(built_with.find('|', begin), built_with.size());
    const std::string entry = built_with.substr(begin, end - begin);
    const std::size_t space = entry.find(' ');
    if (space != std::string::npos) versions.emplace_back(entry.substr(0, space), entry.substr(space + 1));
    begin = end + 1;
  }
  versions.emplace_back("compiler", __VERSION__);
  return versions;
}

}  // namespace magister
