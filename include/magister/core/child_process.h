// Other programs as child processes, never through a shell. Source: POSIX.1-2017 posix_spawn.
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace magister {

// The descriptors and the folder that a child begins with.
class ChildFiles {
 public:
  ChildFiles();
  ~ChildFiles();
  ChildFiles(const ChildFiles&) = delete;
  ChildFiles& operator=(const ChildFiles&) = delete;
  void give(int descriptor, int as);
  void work_in(const std::string& folder);
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

// Starts a program in a session of its own, with no signal blocked or ignored. words: the program, which is searched in
// PATH, and its arguments. variables: "NAME=value". Returns 0 and sets pid, or returns errno. Local.
int start_program(const std::vector<std::string>& words, const ChildFiles& files,
                  const std::vector<std::string>& variables, pid_t& pid);

// The variables with which this process was started, without what MPI_Init and a launcher say of its rank: a child that
// starts mpirun would believe to be that rank.
std::vector<std::string> variables_of_a_child();

struct ProgramAnswer {
  int start_error = 0;  // errno; 0: the program was started
  int exit_code = 0;    // 128 + number for a signal
  bool took_too_long = false;
  std::string output, errors;  // standard output and standard error, each cut after `most` bytes
};
// Runs a program to its end, without standard input. It is killed after `seconds`. Throws Error(kInputOutput) if there
// are no descriptors left. Local.
ProgramAnswer ask_program(const std::vector<std::string>& words, const std::string& working_directory, double seconds,
                          std::size_t most);

}  // namespace magister
