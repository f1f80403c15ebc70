#include "serve/job_process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "magister/core/child_process.h"
#include "magister/core/error.h"
#include "magister/core/file_descriptor.h"

namespace magister {
namespace {

FileDescriptor open_file(const std::string& path, int flags) {
  FileDescriptor file(open(path.c_str(), flags | O_CLOEXEC, 0640));
  MAGISTER_CHECK(file.is_open(), ExitCode::kInputOutput, "{}: cannot be opened ({}); look at its folder",
                 printable(path), strerror(errno));
  return file;
}

constexpr int kLockOfTheJob = 3;  // the descriptor by which the process holds the lock

}  // namespace

pid_t start_job(const JobCommand& command) {
  const FileDescriptor nothing = open_file("/dev/null", O_RDONLY),
                       output = open_file(command.output, O_WRONLY | O_CREAT | O_APPEND),
                       log = open_file(command.log, O_WRONLY | O_CREAT | O_APPEND),
                       lock = open_file(command.lock, O_RDWR | O_CREAT);
  MAGISTER_CHECK(flock(lock.number(), LOCK_EX | LOCK_NB) == 0, ExitCode::kInputOutput,
                 "{}: is locked (the job still runs); wait for its end", printable(command.lock));
  ChildFiles files;
  files.work_in(command.working_directory);
  files.give(nothing.number(), STDIN_FILENO);
  files.give(output.number(), STDOUT_FILENO);
  files.give(log.number(), STDERR_FILENO);
  files.give(lock.number(), kLockOfTheJob);
  pid_t pid = 0;
  const int error = start_program(command.words, files, variables_of_a_child(), pid);
  MAGISTER_CHECK(error == 0, ExitCode::kInputOutput, "{} cannot be started ({}); name a program with --launcher",
                 printable(command.words[0]), strerror(error));
  return pid;
}

bool lock_is_held(const std::string& lock) {
  const FileDescriptor file(open(lock.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) return false;
  return flock(file.number(), LOCK_EX | LOCK_NB) != 0;
}

std::optional<int> ended_child(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void ask_process_to_stop(pid_t pid) { kill(pid, SIGUSR1); }

}  // namespace magister
