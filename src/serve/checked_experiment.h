// An experiment as a request brings it, checked before it is queued.
#pragma once

#include <string>

#include "magister/serve/service.h"

namespace magister {

struct CheckedExperiment {
  std::string name, text;
  std::string fault;  // empty: it may be queued
  int status = 422;   // of the fault: 422 its keys, 403 a folder that it may not name, 503 no check was possible
};

// Removes the files of checks that a killed service left in its root. Local.
void remove_old_checks(const std::string& root);

// text: YAML or JSON. The program itself reads the experiment (`run --print-config`), in a process of its own, so the
// messages are those of the command line. Every text of the resolved experiment that is an absolute path, or leaves the
// working directory, must lie in the root or in an allowed folder. Local, about half a second.
CheckedExperiment check_experiment(const ServeOptions& options, const std::string& text);

}  // namespace magister
