// The plug-in is loaded by its bare name: the program's run path contains its folder (scripts/cmake/ArrowPlugin.cmake).
#include "io/dataset/arrow_plugin.h"

#include <dlfcn.h>

#include "magister/core/error.h"

namespace magister {

void* arrow_symbol(const char* name, const std::string& path) {
  void* const library = ::dlopen("magister_arrow.so", RTLD_NOW | RTLD_LOCAL);
  const char* const reason = library == nullptr ? ::dlerror() : "";
  void* const symbol = library == nullptr ? nullptr : ::dlsym(library, name);
  MAGISTER_CHECK(symbol != nullptr, ExitCode::kConfig,
                 "{}: Parquet and Arrow files need a plug-in that is not there ({}); run `scripts/setup.sh data && "
                 "cmake -S . -B build && cmake --build build --target magister`, or use JSONL",
                 printable(path), library == nullptr ? printable(reason) : "magister_arrow.so is of another version");
  return symbol;
}

}  // namespace magister
