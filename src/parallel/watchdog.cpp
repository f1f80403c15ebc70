// A thread that looks at one deadline a few times a second.
#include "magister/parallel/watchdog.h"

#include <mpi.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/parallel/communicator.h"

namespace magister {

using Clock = std::chrono::steady_clock;

struct Watchdog::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool stop = false, watching = false;
  bool poke = false;
  std::string phase;
  std::int64_t unit = -1;
  Clock::time_point since;
  std::chrono::milliseconds default_deadline{}, deadline{};
  std::thread thread;

  std::string where() const {
    return unit < 0 ? fmt::format("phase \"{}\"", phase) : fmt::format("phase \"{}\", unit {}", phase, unit);
  }

  void watch() {
    // One-sided operations on rank 0 may need it to enter the MPI library: every 5 ms is often enough for tickets.
    const auto pause = poke ? std::chrono::milliseconds(5) : std::chrono::milliseconds(50);
    std::unique_lock lock(mutex);
    while (!stop) {
      wake.wait_for(lock, pause);
      if (poke && !stop) {
        int flag = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
      }
      if (!stop && watching && Clock::now() - since > deadline) {
        const double seconds = std::chrono::duration<double>(Clock::now() - since).count();
        log_local(LogLevel::kError,
                  "rank {} on {} has been in {} for {:.1f} s, longer than its deadline of {:.1f} s (it, or a rank it waits "
                  "for, is stuck; committed units are safe); run the same command again, or raise run.watchdog_seconds",
                  log_world_rank(), host_name(), where(), seconds, std::chrono::duration<double>(deadline).count());
        abort_job(static_cast<int>(ExitCode::kInternal));
      }
    }
  }
};

Watchdog::Watchdog(std::chrono::milliseconds default_deadline, bool poke_mpi_progress)
    : state_(std::make_unique<State>()) {
  state_->default_deadline = default_deadline;
  int up = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&up);
  if (up != 0) MPI_Query_thread(&provided);
  state_->poke = poke_mpi_progress && provided == MPI_THREAD_MULTIPLE;
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

void Watchdog::enter(const std::string& phase, std::int64_t unit, std::chrono::milliseconds deadline) {
  const std::lock_guard lock(state_->mutex);
  state_->phase = phase;
  state_->unit = unit;
  state_->since = Clock::now();
  state_->deadline = deadline;
  state_->watching = true;
}

void Watchdog::leave() {
  const std::lock_guard lock(state_->mutex);
  state_->watching = false;
}

std::string Watchdog::where() const {
  const std::lock_guard lock(state_->mutex);
  return state_->where();
}

}  // namespace magister
