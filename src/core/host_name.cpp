// The host name from gethostname(2); "unknown" if the call fails.
#include "magister/core/host_name.h"

#include <unistd.h>

namespace magister {

std::string host_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace magister
