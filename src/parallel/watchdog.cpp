// A thread that looks at one clock a few times a second. The clock stands still while the process does (SIGSTOP,
// scontrol suspend, a frozen container): a job that is woken up again must not be ended for having slept.
#include "magister/parallel/watchdog.h"

#include <mpi.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/exchange.h"

namespace magister {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Window operations on rank 0 may need it to enter the MPI library: every 5 ms is often enough for tickets.
constexpr milliseconds kPokePause{5}, kLookPause{50};
// More than this between two looks was no time of this process.
constexpr milliseconds kLongestLook{1000};

void poke_mpi() {
  int started = 0, finalized = 0, flag = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&finalized);
  if (started != 0 && finalized == 0) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
}

void end_job(const std::string& message) {
  log_local(LogLevel::kError, "{}", message);
  abort_job(static_cast<int>(ExitCode::kInternal));
}

}  // namespace

struct Watchdog::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool stop = false, watching = false, poke = false;
  std::string phase = "start-up";
  std::int64_t unit = -1;
  Clock::duration spent{}, deadline{};
  Clock::time_point last_look = Clock::now();
  milliseconds default_deadline{};
  std::function<void(const std::string&)> on_stall;
  std::function<std::uint64_t()> sign_of_life;  // of the others, while this rank waits for them
  std::optional<std::uint64_t> last_sign;
  Clock::duration patience{};  // from one look at it to the next
  std::thread thread;

  std::string message() const {
    using Seconds = std::chrono::duration<double>;
    return fmt::format(
        "rank {} on {} has been in phase {}{} for {:.1f} s, {} {:.1f} s (it, or a rank that it waits for, is stuck; "
        "committed units are safe); run the same command again, or raise run.watchdog_seconds",
        log_world_rank(), host_name(), phase, unit < 0 ? "" : fmt::format(" (unit {})", unit), Seconds(spent).count(),
        sign_of_life ? "and nobody has shown a sign of life in the last" : "longer than its deadline of",
        Seconds(sign_of_life ? patience : deadline).count());
  }

  void begin(const std::string& new_phase, std::int64_t new_unit, milliseconds new_deadline) {
    phase = new_phase;
    unit = new_unit;
    spent = {};
    last_look = Clock::now();  // what passed before the phase is none of its time
    deadline = new_deadline;
    patience = new_deadline;
    sign_of_life = nullptr;
    last_sign.reset();
    watching = true;
  }

  // Under the mutex, so that nobody asks any longer when the next phase has been entered.
  bool others_live() {
    if (!sign_of_life) return false;
    const std::optional<std::uint64_t> before = std::exchange(last_sign, sign_of_life());
    return !before || last_sign != before;
  }

  void watch() {
    const milliseconds pause = poke ? kPokePause : kLookPause;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, pause, [&] { return stop; })) {
      if (poke) {
        lock.unlock();
        poke_mpi();
        lock.lock();
      }
      const Clock::time_point now = Clock::now();
      spent += std::min<Clock::duration>(now - std::exchange(last_look, now), kLongestLook);
      if (!watching || stop || spent <= deadline) continue;
      if (others_live()) {
        deadline = spent + patience;
        continue;
      }
      watching = false;  // said once
      const std::string text = message();
      lock.unlock();
      on_stall(text);
      lock.lock();
    }
  }
};

Watchdog::Watchdog(milliseconds default_deadline, bool poke_mpi_progress,
                   std::function<void(const std::string&)> on_stall)
    : state_(std::make_unique<State>()) {
  state_->default_deadline = default_deadline;
  state_->on_stall = on_stall ? std::move(on_stall) : end_job;
  int started = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&started);
  if (started != 0) MPI_Query_thread(&level);
  state_->poke = poke_mpi_progress && level == MPI_THREAD_MULTIPLE;
  state_->thread = std::thread([state = state_.get()] { state->watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  state_->thread.join();
}

void Watchdog::enter(const std::string& phase, std::int64_t unit) { enter(phase, unit, state_->default_deadline); }

void Watchdog::enter(const std::string& phase, std::int64_t unit, milliseconds deadline) {
  const std::lock_guard lock(state_->mutex);
  state_->begin(phase, unit, deadline);
}

void Watchdog::wait_for_others(const std::string& phase, std::int64_t unit,
                               std::function<std::uint64_t()> sign_of_life) {
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0 && !threads_may_exchange()) return enter(phase, unit);
  const std::lock_guard lock(state_->mutex);
  state_->begin(phase, unit, state_->default_deadline);
  state_->sign_of_life = std::move(sign_of_life);
}

void Watchdog::leave() {
  const std::lock_guard lock(state_->mutex);
  state_->sign_of_life = nullptr;
  state_->watching = false;
}

std::string Watchdog::where() const {
  const std::lock_guard lock(state_->mutex);
  return state_->unit < 0 ? fmt::format("phase {}", state_->phase)
                          : fmt::format("phase {}, unit {}", state_->phase, state_->unit);
}

}  // namespace magister
