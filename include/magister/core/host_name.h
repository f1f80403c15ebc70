// The name of the machine that this process runs on, for messages.
#pragma once

#include <string>

namespace magister {

std::string host_name();

}  // namespace magister
