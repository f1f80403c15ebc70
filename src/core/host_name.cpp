// The kernel's name for this machine; "unknown" where it tells none.
#include "magister/core/host_name.h"

#include <unistd.h>

namespace magister {

std::string host_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace magister
