#include "serve/job_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>

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

// The variables with which this process was started: those that MPI_Init has set since then say that it is a rank, and
// mpirun would end without a word. What a launcher of this process said of its rank is left out, too.
std::vector<std::string> environment_of_a_job() {
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

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  void give(int descriptor, int as) { posix_spawn_file_actions_adddup2(&actions_, descriptor, as); }
  void work_in(const std::string& folder) { posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str()); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

pid_t spawn(const std::vector<std::string>& words, const SpawnActions& actions) {
  const std::vector<std::string> variables = environment_of_a_job();
  std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, usual;
  sigemptyset(&none);
  sigfillset(&usual);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int code = posix_spawnp(&pid, arguments[0], actions.get(), &attributes, arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  MAGISTER_CHECK(code == 0, ExitCode::kInputOutput, "{} cannot be started ({}); name a program with --launcher",
                 printable(words[0]), strerror(code));
  return pid;
}

constexpr int kLockOfTheJob = 3;  // the descriptor by which the process holds the lock

}  // namespace

pid_t start_job(const JobCommand& command) {
  const FileDescriptor nothing = open_file("/dev/null", O_RDONLY),
                       log = open_file(command.log, O_WRONLY | O_CREAT | O_APPEND),
                       lock = open_file(command.lock, O_RDWR | O_CREAT);
  MAGISTER_CHECK(flock(lock.number(), LOCK_EX | LOCK_NB) == 0, ExitCode::kInputOutput,
                 "{}: is locked (the job still runs); wait for its end", printable(command.lock));
  SpawnActions actions;
  actions.work_in(command.working_directory);
  actions.give(nothing.number(), STDIN_FILENO);
  actions.give(log.number(), STDOUT_FILENO);
  actions.give(log.number(), STDERR_FILENO);
  actions.give(lock.number(), kLockOfTheJob);
  return spawn(command.words, actions);
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

Answer ask_program(const std::vector<std::string>& words, const std::string& working_directory, double seconds,
                   std::size_t most) {
  std::array<FileDescriptor, 2> ends;
  SpawnActions actions;
  std::array<FileDescriptor, 2> inner;
  for (std::size_t i = 0; i < 2; ++i) {
    int pair[2];
    MAGISTER_CHECK(pipe2(pair, O_CLOEXEC) == 0, ExitCode::kInputOutput, "no pipe ({}); close programs",
                   strerror(errno));
    ends[i].reset(pair[0]);
    inner[i].reset(pair[1]);
  }
  const FileDescriptor nothing = open_file("/dev/null", O_RDONLY);
  actions.work_in(working_directory);
  actions.give(nothing.number(), STDIN_FILENO);
  actions.give(inner[0].number(), STDOUT_FILENO);
  actions.give(inner[1].number(), STDERR_FILENO);
  const pid_t pid = spawn(words, actions);
  for (FileDescriptor& end : inner) end.reset();

  Answer answer;
  const std::array<std::string*, 2> texts = {&answer.output, &answer.errors};
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (ends[0].is_open() || ends[1].is_open()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    std::array<pollfd, 2> asked = {pollfd{ends[0].number(), POLLIN, 0}, pollfd{ends[1].number(), POLLIN, 0}};
    if (left.count() <= 0 || poll(asked.data(), 2, static_cast<int>(left.count())) == 0) {
      kill(pid, SIGKILL);
      answer.errors += "the check took too long";
      break;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (asked[i].revents == 0) continue;
      std::array<char, 1 << 14> bytes;
      const ssize_t got = read(ends[i].number(), bytes.data(), bytes.size());
      if (got <= 0)
        ends[i].reset();
      else if (texts[i]->size() < most)
        texts[i]->append(bytes.data(), static_cast<std::size_t>(got));
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return answer;
}

}  // namespace magister
