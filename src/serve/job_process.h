// The process of a job: `<launcher> magister run experiment.yaml` in a session of its own, with its output in log.txt.
// It holds the lock of the job's folder as long as it lives, so that a later service knows whether it still runs.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace magister {

struct JobCommand {
  std::vector<std::string> words;  // the program and its arguments; never a shell
  std::string working_directory;   // relative paths of the experiment begin here
  std::string output, log;         // standard output and standard error are appended to them
  std::string lock;                // the file whose lock the process inherits
};

// Starts the process and returns its id. Throws Error(kInputOutput) if a file cannot be opened, the lock is held, or
// the program cannot be started. Local.
pid_t start_job(const JobCommand& command);
// True if a process holds the lock of this file. Local.
bool lock_is_held(const std::string& lock);
// The exit code of a child that has ended, 128 + number for a signal; no value while it runs or if it is not a child of
// this process. Local.
std::optional<int> ended_child(pid_t pid);
// Asks a job to stop cleanly: SIGUSR1, which mpirun passes on to its ranks. Local.
void ask_process_to_stop(pid_t pid);

}  // namespace magister
