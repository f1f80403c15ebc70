// See mpi_components.h. Source: dlopen(3), RTLD_NODELETE; Open MPI names its components mca_<framework>_<component>.so.
#include "parallel/mpi_components.h"

#include <dlfcn.h>
#include <link.h>

#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

void keep_mpi_components() noexcept {
  try {
    std::vector<std::string> paths;  // collected first, because nothing may be opened during the walk
    dl_iterate_phdr(
        [](dl_phdr_info* library, std::size_t, void* found) {
          const std::string_view path(library->dlpi_name);
          if (path.find("/mca_") != std::string_view::npos)
            static_cast<std::vector<std::string>*>(found)->emplace_back(path);
          return 0;
        },
        &paths);
    for (const std::string& path : paths) {
      if (void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE)) dlclose(library);
    }
  } catch (const std::exception&) {  // no memory for the names: the components are then not kept
  }
}

}  // namespace magister
