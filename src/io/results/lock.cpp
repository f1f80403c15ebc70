// One lock file in the results' folder, which every rank locks shared while its ResultsLock exists. Rank 0 first takes
// it exclusively: a holder at that time is another run, or leftover processes of a killed one, which take 1.5 to 2.4 s
// to exit (measured); the lock waits for these. flock, or, if the file system lacks it, open-file-description locks of
// fcntl: both belong to the open file, so a thread that closes another descriptor cannot drop them. Sources: flock(2),
// fcntl(2), proc(5).
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "magister/io/results/results_file.h"

namespace magister {
namespace {

using nlohmann::json;
// Counts attempts instead of time: the clock goes on while a machine is suspended, and then no orphan had time to exit.
constexpr auto kPause = std::chrono::milliseconds(50);
constexpr int kOrphansGone = 200;  // 10 s
// A starting run needs microseconds between creating the lock file and writing its name; a network file system may need
// up to 0.3 s.
constexpr int kNameWritten = 6;

enum class LockKind { kShared, kExclusive };
enum class LockAnswer { kLocked, kHeld, kUnsupported };

FileDescriptor open_lock_file(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640));
  MAGISTER_CHECK(file.is_open(), ExitCode::kInputOutput,
                 "{}: the lock file cannot be opened: {} (two runs could write one file); make the folder writable",
                 printable(path), std::strerror(errno));
  return file;
}

LockAnswer answer_of(int error) noexcept {
  if (error == EWOULDBLOCK || error == EAGAIN || error == EACCES) return LockAnswer::kHeld;
  return LockAnswer::kUnsupported;
}

LockAnswer flock_now(int descriptor, LockKind kind) noexcept {
  while (::flock(descriptor, (kind == LockKind::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    if (errno != EINTR) return answer_of(errno);
  }
  return LockAnswer::kLocked;
}

LockAnswer fcntl_now(int descriptor, LockKind kind) noexcept {
  struct flock whole{};
  whole.l_type = kind == LockKind::kShared ? F_RDLCK : F_WRLCK;
  whole.l_whence = SEEK_SET;
  while (::fcntl(descriptor, F_OFD_SETLK, &whole) != 0) {
    if (errno != EINTR) return answer_of(errno);
  }
  return LockAnswer::kLocked;
}

// True if locked; false if another process holds the lock. On a file system without locks it warns and returns true.
bool try_lock(int descriptor, LockKind kind, const std::string& path) {
  LockAnswer answer = fail_point("results.lock.flock") ? LockAnswer::kUnsupported : flock_now(descriptor, kind);
  if (answer == LockAnswer::kUnsupported) {
    answer = fcntl_now(descriptor, kind);
    if (kind == LockKind::kExclusive && answer == LockAnswer::kLocked) {
      log_info("{}: this file system has no flock; fcntl locks are used", path);
    }
  }
  if (answer == LockAnswer::kUnsupported && kind == LockKind::kExclusive) {
    log_warning("{}: this file system has no locks; see to it that no second run writes here", path);
  }
  return answer != LockAnswer::kHeld;
}

// True if the locked file is still the one under this path. Its last holder may have removed it meanwhile, and then a
// third run could lock a new file of that name.
bool still_there(int descriptor, const std::string& path) {
  struct stat held{}, named{};
  return ::fstat(descriptor, &held) == 0 && ::lstat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

// The process's start time in clock ticks since boot; 0: no such process, or only a zombie. Distinguishes a process
// from a later one with the same number.
std::uint64_t process_start(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_end = text.rfind(')');  // the name may contain any character
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return 0;
  const char state = text[name_end + 2];
  if (state == 'Z' || state == 'X') return 0;
  std::size_t at = name_end + 2;
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

// The parent when this process began. If a launcher is killed before its ranks have a lock, they get another, living
// parent.
struct Launcher {
  std::int64_t pid = ::getppid();
  std::uint64_t start = process_start(pid);
};
const Launcher started_by;

std::string first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return value;
  }
  return "";
}

void write_holder(int descriptor) {
  char since[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", ::gmtime_r(&now, &utc));
  // Without a launcher the parent is a shell, which may exit while the run goes on.
  const bool launched = !first_set({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}).empty();
  const json holder = {{"host", host_name()},
                       {"pid", ::getpid()},
                       {"pid_start", process_start(::getpid())},
                       {"launcher", launched ? started_by.pid : 0},
                       {"launcher_start", launched ? started_by.start : 0},
                       {"since", since},
                       {"job", first_set({"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"})}};
  const std::string text = holder.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, text.data(), text.size(), 0) < 0) {
    log_warning("the lock file cannot be written: {}; a second run could not name the holder", std::strerror(errno));
  }
}

// The lock's holder, as the holder wrote it; unreadable content counts as empty.
struct Holder {
  std::string host, since, job;
  std::int64_t pid = 0, launcher = 0;
  std::uint64_t pid_start = 0, launcher_start = 0;

  bool known() const { return pid > 0; }
  // True if it ran on this host and its launcher or first rank is gone: its remaining processes are exiting.
  bool orphaned() const {
    if (!known() || host != host_name()) return false;
    return process_start(pid) != pid_start || (launcher > 0 && process_start(launcher) != launcher_start);
  }
  std::string text() const {
    if (!known()) return "an unknown process";
    return fmt::format("process {} on {} since {}{}", pid, printable(host, 80), printable(since, 40),
                       job.empty() ? "" : ", job " + printable(job, 40));
  }
};

Holder read_holder(int descriptor) {
  char text[2048] = "";
  const ssize_t n = ::pread(descriptor, text, sizeof text, 0);
  const json object = json::parse(std::string_view(text, n > 0 ? static_cast<std::size_t>(n) : 0), nullptr, false);
  Holder holder;
  try {
    if (!object.is_object()) return holder;
    holder.host = object.value("host", "");
    holder.since = object.value("since", "");
    holder.job = object.value("job", "");
    holder.pid = object.value("pid", std::int64_t{0});
    holder.launcher = object.value("launcher", std::int64_t{0});
    holder.pid_start = object.value("pid_start", std::uint64_t{0});
    holder.launcher_start = object.value("launcher_start", std::uint64_t{0});
  } catch (const json::exception&) {
    return {};
  }
  return holder;
}

FileDescriptor take_first(const std::string& path) {
  bool said = false;
  for (int looks = 0;; ++looks) {
    FileDescriptor file = open_lock_file(path);
    if (try_lock(file.number(), LockKind::kExclusive, path)) {
      if (still_there(file.number(), path)) {
        write_holder(file.number());
        return file;
      }
      continue;  // its last holder removed it between our open and our lock
    }
    const Holder holder = read_holder(file.number());
    file.reset();
    const bool wait = holder.orphaned() ? looks < kOrphansGone : !holder.known() && looks < kNameWritten;
    MAGISTER_CHECK(wait, ExitCode::kInputOutput,
                   "{}: another run holds it: {} (two runs would write one file); wait for it, or "
                   "end it",
                   printable(path), holder.text());
    if (holder.orphaned() && !std::exchange(said, true))
      log_info("waiting for the last processes of a killed run to end");
    std::this_thread::sleep_for(kPause);
  }
}

void share(int descriptor, const std::string& path) {
  // flock releases the lock for a moment when it changes from exclusive to shared. If another run takes it then, this
  // call fails and one of the runs ends.
  MAGISTER_CHECK(
      try_lock(descriptor, LockKind::kShared, path), ExitCode::kInputOutput,
      "{}: another run started at the same moment: {} (two runs would write one file); run the command again when "
      "it is done",
      printable(path), read_holder(descriptor).text());
}

}  // namespace

std::optional<LockHolder> lock_holder(const std::string& final_path) {
  const FileDescriptor file(::open((final_path + ".lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.is_open()) return std::nullopt;
  const Holder holder = read_holder(file.number());
  LockHolder found{holder.text(), std::nullopt};
  if (holder.known() && holder.host == host_name()) found.alive = !holder.orphaned();
  return found;
}

ResultsLock::ResultsLock(const Communicator& world, const std::string& final_path, bool held_already)
    : path_(final_path + ".lock") {
  const bool takes_first = world.rank() == 0 && !held_already;
  if (takes_first) {
    file_ = take_first(path_);
    share(file_.number(), path_);
  }
  world.barrier();
  if (!takes_first) {
    file_ = open_lock_file(path_);
    share(file_.number(), path_);
  }
  world.barrier();
}

// The last process to leave removes the file: only a process that can lock it exclusively knows that no other holds it.
// A newcomer that opened the removed file sees that the path has another inode, or none, and opens again.
ResultsLock::~ResultsLock() {
  if (!file_.is_open()) return;
  // Takes both kinds of lock: one of them is in use, and a kind that the file system lacks has no holders. The second
  // is tried only after the first succeeded: if two ranks leave at once, each could win one of them, and the file would
  // stay.
  const LockAnswer by_flock = flock_now(file_.number(), LockKind::kExclusive);
  const LockAnswer by_fcntl =
      by_flock == LockAnswer::kHeld ? LockAnswer::kHeld : fcntl_now(file_.number(), LockKind::kExclusive);
  const bool alone =
      by_fcntl != LockAnswer::kHeld && (by_flock == LockAnswer::kLocked || by_fcntl == LockAnswer::kLocked);
  if (alone && still_there(file_.number(), path_)) ::unlink(path_.c_str());
}

ResultsLock::ResultsLock(ResultsLock&& other) noexcept = default;

}  // namespace magister
