// Questions of the service to the program itself: `plan`, `history`, `status`, `doctor`, `run --print-config`. Each is
// a process of its own, so a fault in a request's experiment or model ends that process and not the service.
#pragma once

#include <string>
#include <vector>

#include "magister/core/child_process.h"
#include "magister/serve/service.h"

namespace magister {

// Waits where many requests arrive at once (a process for each would take the machine's memory), then runs the program
// with these arguments in the root. launcher: words before it. Local, some tenths of a second and more.
ProgramAnswer ask_own_program(const ServeOptions& options, std::vector<std::string> arguments,
                              const std::vector<std::string>& launcher = {});

}  // namespace magister
