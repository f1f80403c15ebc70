#include "magister/core/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string_view>

#include "magister/core/error.h"
#include "magister/core/file_descriptor.h"

namespace magister {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  FileDescriptor ours, theirs;
  Pipe() {
    std::array<int, 2> ends{};
    MAGISTER_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0, ExitCode::kInputOutput,
                   "pipe2: {} (another program cannot be read); close other programs", strerror(errno));
    ours.reset(ends[0]);
    theirs.reset(ends[1]);
  }
};

int exit_code_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Reads a piece of a pipe, which is closed at its end.
void read_piece(FileDescriptor& pipe, std::string& text, std::size_t most) {
  std::array<char, 1 << 16> bytes;
  const ssize_t got = read(pipe.number(), bytes.data(), bytes.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) return pipe.reset();
  text.append(bytes.data(), std::min(static_cast<std::size_t>(got), most - std::min(most, text.size())));
}

}  // namespace

ChildFiles::ChildFiles() { posix_spawn_file_actions_init(&actions_); }
ChildFiles::~ChildFiles() { posix_spawn_file_actions_destroy(&actions_); }
void ChildFiles::give(int descriptor, int as) { posix_spawn_file_actions_adddup2(&actions_, descriptor, as); }
void ChildFiles::work_in(const std::string& folder) { posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str()); }

std::vector<std::string> variables_of_a_child() {
  std::ifstream file("/proc/self/environ", std::ios::binary);
  std::vector<std::string> kept;
  for (std::string entry; std::getline(file, entry, '\0');) {
    bool of_a_rank = false;
    for (const std::string_view begin : {"OMPI_COMM_", "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_UNIVERSE_", "PMIX_RANK",
                                         "PMIX_NAMESPACE", "PMIX_SERVER_", "PMI_", "SLURM_PROCID", "SLURM_LOCALID"})
      of_a_rank |= entry.starts_with(begin);
    if (!of_a_rank && !entry.empty()) kept.push_back(std::move(entry));
  }
  return kept;
}

int start_program(const std::vector<std::string>& words, const ChildFiles& files,
                  const std::vector<std::string>& variables, pid_t& pid) {
  std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, usual;
  sigemptyset(&none);
  sigfillset(&usual);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawnp(&pid, arguments[0], files.get(), &attributes, arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  return error;
}

ProgramAnswer ask_program(const std::vector<std::string>& words, const std::string& working_directory, double seconds,
                          std::size_t most) {
  Pipe output, errors;
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  ChildFiles files;
  files.work_in(working_directory);
  files.give(nothing.number(), STDIN_FILENO);
  files.give(output.theirs.number(), STDOUT_FILENO);
  files.give(errors.theirs.number(), STDERR_FILENO);
  ProgramAnswer answer;
  pid_t child = 0;
  answer.start_error = start_program(words, files, variables_of_a_child(), child);
  if (answer.start_error != 0) return answer;
  output.theirs.reset();
  errors.theirs.reset();
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (output.ours.is_open() || errors.ours.is_open()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      answer.took_too_long = true;
      kill(-child, SIGKILL);
      break;
    }
    std::array<pollfd, 2> asked = {pollfd{output.ours.number(), POLLIN, 0}, pollfd{errors.ours.number(), POLLIN, 0}};
    if (poll(asked.data(), asked.size(), static_cast<int>(left.count())) <= 0) continue;
    if (asked[0].revents != 0) read_piece(output.ours, answer.output, most);
    if (asked[1].revents != 0) read_piece(errors.ours, answer.errors, most);
  }
  answer.exit_code = exit_code_of(child);
  return answer;
}

}  // namespace magister
