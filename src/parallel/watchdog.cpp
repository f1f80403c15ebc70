// A thread that checks a clock a few times per second. The clock stops while the process is stopped (SIGSTOP, scontrol
// suspend, a frozen container): a job that is resumed must not end because it was stopped.
#include "magister/parallel/watchdog.h"

#include <mpi.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
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

// Window operations on rank 0 may need it to call the MPI library; every 5 ms is often enough for tickets.
constexpr milliseconds kPokePause{5}, kLookPause{50};
constexpr std::chrono::seconds kLongestAnswer{10};
// Time beyond this between two checks does not count: the process was stopped.
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
  std::function<std::uint64_t()> sign_of_life;  // of the other ranks, while this rank waits for them
  std::optional<std::uint64_t> last_sign, answer;
  Clock::duration patience{};  // time between two calls of sign_of_life
  std::uint64_t phases = 0;    // number of phases so far
  bool asking = false;
  std::thread asker;
  std::thread thread;

  std::string message() const {
    using Seconds = std::chrono::duration<double>;
    return fmt::format(
        "rank {} on {} has been in phase {}{} for {:.1f} s, {} {:.1f} s (it, or a rank that it waits for, is stuck; "
        "committed units are safe); run the same command again, or raise run.watchdog_seconds",
        log_world_rank(), host_name(), phase, unit < 0 ? "" : fmt::format(" (unit {})", unit), Seconds(spent).count(),
        sign_of_life ? "and no rank has reported progress in the last" : "longer than its deadline of",
        Seconds(sign_of_life ? patience : deadline).count());
  }

  void begin(const std::string& new_phase, std::int64_t new_unit, milliseconds new_deadline) {
    phase = new_phase;
    unit = new_unit;
    spent = {};
    last_look = Clock::now();  // time before the phase does not count
    deadline = new_deadline;
    patience = new_deadline;
    sign_of_life = nullptr;
    last_sign.reset();
    ++phases;
    watching = true;
  }

  // Calls sign_of_life in a thread of its own. The rank that answers may itself be the one that is stuck, so no answer
  // counts as no sign.
  void ask() {
    if (asker.joinable()) asker.join();
    asking = true;
    answer.reset();
    asker = std::thread([this, question = sign_of_life] {
      std::optional<std::uint64_t> found;
      try {
        found = question();
      } catch (const std::exception& error) {
        log_local(LogLevel::kWarning, "the progress of the other ranks cannot be read: {}", error.what());
      }
      const std::lock_guard own_lock(mutex);
      answer = found;
      asking = false;
      wake.notify_all();
    });
  }

  // Called at the deadline: returns whether this phase is stuck. If the other ranks make progress, the phase gets a new
  // deadline.
  bool is_stuck(std::unique_lock<std::mutex>& lock) {
    if (!sign_of_life) return true;
    const std::uint64_t this_phase = phases;
    try {
      ask();
      wake.wait_for(lock, std::min<Clock::duration>(patience, kLongestAnswer), [&] { return stop || !asking; });
    } catch (const std::system_error&) {  // no thread could be started, which tells nothing about the other ranks
      asking = false;
      answer = last_sign.value_or(0) + 1;
    }
    if (phases != this_phase || stop) return false;  // another phase has begun meanwhile
    if (asking || !answer) return true;
    const std::optional<std::uint64_t> before = std::exchange(last_sign, answer);
    if (before && last_sign == before) return true;
    deadline = spent + patience;
    return false;
  }

  // Waits until no call of sign_of_life is running, before the next phase begins.
  void wait_for_answer(std::unique_lock<std::mutex>& lock) {
    wake.wait(lock, [&] { return !asking; });
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
      if (!is_stuck(lock)) continue;
      watching = false;  // reported once
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
  if (state_->asker.joinable()) state_->asker.join();
}

void Watchdog::enter(const std::string& phase, std::int64_t unit) { enter(phase, unit, state_->default_deadline); }

void Watchdog::enter(const std::string& phase, std::int64_t unit, milliseconds deadline) {
  std::unique_lock lock(state_->mutex);
  state_->wait_for_answer(lock);
  state_->begin(phase, unit, deadline);
}

void Watchdog::wait_for_others(const std::string& phase, std::int64_t unit,
                               std::function<std::uint64_t()> sign_of_life) {
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0 && !threads_may_exchange()) return enter(phase, unit);
  std::unique_lock lock(state_->mutex);
  state_->wait_for_answer(lock);
  state_->begin(phase, unit, state_->default_deadline);
  state_->sign_of_life = std::move(sign_of_life);
}

void Watchdog::leave() {
  std::unique_lock lock(state_->mutex);
  state_->wait_for_answer(lock);
  state_->sign_of_life = nullptr;
  ++state_->phases;
  state_->watching = false;
}

std::string Watchdog::where() const {
  const std::lock_guard lock(state_->mutex);
  return state_->unit < 0 ? fmt::format("phase {}", state_->phase)
                          : fmt::format("phase {}, unit {}", state_->phase, state_->unit);
}

}  // namespace magister
