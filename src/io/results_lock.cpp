// One lock file beside the results, flock()ed shared by every rank. Rank 0 takes it exclusively first: what holds it then
// is another run, or the orphans of a killed mpirun, which live on for 1.5 to 2.4 s (measured) and are waited for.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/results_file.h"

namespace magister {
namespace {

using nlohmann::json;
constexpr auto kOrphansGone = std::chrono::seconds(10);

int open_lock_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
  MAGISTER_CHECK(descriptor >= 0, ExitCode::kInputOutput,
                 "{}: the lock file cannot be opened ({}; two runs could write one file); make the folder writable",
                 printable(path), std::strerror(errno));
  return descriptor;
}

// True when locked; false when somebody holds it. A file system without flock is said so and goes on unlocked.
bool try_lock(int descriptor, int kind, const std::string& path) {
  while (::flock(descriptor, kind | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return false;
    log_warning("{}: this file system has no locks ({}); see to it that no second run writes here", path,
                std::strerror(errno));
    return true;
  }
  return true;
}

// Whether the lock's file is still the one under this path: its last holder may have removed it meanwhile.
bool still_there(int descriptor, const std::string& path) {
  struct stat held {}, named {};
  return ::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

json read_holder(int descriptor) {
  char text[1024] = "";
  const ssize_t n = ::pread(descriptor, text, sizeof text - 1, 0);
  return json::parse(std::string_view(text, n > 0 ? static_cast<std::size_t>(n) : 0), nullptr, false);
}

void write_holder(int descriptor) {
  const json holder = {{"host", host_name()}, {"pid", ::getpid()}, {"launcher", ::getppid()}};
  const std::string text = holder.dump() + "\n";
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, text.data(), text.size(), 0) < 0) {
    log_warning("the lock file cannot be written ({}); a second run would not say who holds it", std::strerror(errno));
  }
}

// The holder's launcher is gone from this host: its ranks are dying.
bool orphaned(const json& holder) {
  if (!holder.is_object() || holder.value("host", "") != host_name()) return false;
  const int launcher = holder.value("launcher", 0), pid = holder.value("pid", 0);
  const auto gone = [](int process) { return process > 1 && ::kill(process, 0) != 0 && errno == ESRCH; };
  return gone(launcher) || gone(pid);
}

int take_first(const std::string& path) {
  const auto give_up = std::chrono::steady_clock::now() + kOrphansGone;
  bool said = false;
  for (;;) {
    const int descriptor = open_lock_file(path);
    const json holder = read_holder(descriptor);
    if (try_lock(descriptor, LOCK_EX, path) && still_there(descriptor, path)) {
      write_holder(descriptor);
      return descriptor;
    }
    const bool dying = orphaned(holder) || !still_there(descriptor, path);
    ::close(descriptor);
    MAGISTER_CHECK(dying && std::chrono::steady_clock::now() < give_up, ExitCode::kInputOutput,
                   "{}: another run holds it (process {} on {}; two runs would write one file); wait for it, or end it",
                   printable(path), holder.is_object() ? holder.value("pid", 0) : 0,
                   holder.is_object() ? printable(holder.value("host", "?")) : "?");
    if (!std::exchange(said, true)) log_info("waiting for the last processes of a killed run to end");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

ResultsLock::ResultsLock(const Communicator& world, const std::string& final_path) : path_(final_path + ".lock") {
  if (world.rank() == 0) {
    descriptor_ = take_first(path_);
    // From exclusive to shared: whoever slips in between makes this fail, and one of the two runs ends.
    MAGISTER_CHECK(try_lock(descriptor_, LOCK_SH, path_), ExitCode::kInputOutput,
                   "{}: another run started at the same moment (two runs would write one file); run the command again",
                   printable(path_));
  }
  world.barrier();
  if (world.rank() != 0) {
    descriptor_ = open_lock_file(path_);
    MAGISTER_CHECK(try_lock(descriptor_, LOCK_SH, path_), ExitCode::kInputOutput,
                   "{}: another run started at the same moment (two runs would write one file); run the command again",
                   printable(path_));
  }
  world.barrier();
}

// The last one out removes the file: only who can lock it exclusively knows that nobody else holds it, and a newcomer
// that opened the removed file sees that the path has another inode and opens again.
ResultsLock::~ResultsLock() {
  if (descriptor_ < 0) return;
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 && still_there(descriptor_, path_)) ::unlink(path_.c_str());
  ::close(descriptor_);
}

ResultsLock::ResultsLock(ResultsLock&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

}  // namespace magister
