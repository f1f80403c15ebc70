// One MPI window on world rank 0 with four counters, touched by passive-target atomics only.
#include "magister/parallel/unit_tickets.h"

#include <mpi.h>

#include "magister/parallel/communicator.h"
#include "parallel/check.h"
#include "parallel/communicator_handle.h"

namespace magister {
namespace {

enum Counter : MPI_Aint { kNextTicket, kUnitsDone, kTokensDone, kStop, kNumCounters };

}  // namespace

struct UnitTickets::Window {
  MPI_Win win = MPI_WIN_NULL;
  std::uint64_t* memory = nullptr;
  std::uint64_t alone[kNumCounters] = {};  // of a communicator without MPI
  const Communicator* world = nullptr;
  std::vector<std::uint64_t> pending;
  Schedule schedule = Schedule::kDynamic;
  std::uint64_t next_static = 0, stride = 1;

  // Adds to a counter and returns what it was. add = 0 reads.
  std::uint64_t fetch_add(Counter counter, std::uint64_t add) {
    if (win == MPI_WIN_NULL) {
      const std::uint64_t before = alone[counter];
      alone[counter] += add;
      return before;
    }
    std::uint64_t before = 0;
    MAGISTER_CHECK_MPI(MPI_Fetch_and_op(&add, &before, MPI_UINT64_T, 0, counter, add == 0 ? MPI_NO_OP : MPI_SUM, win));
    MAGISTER_CHECK_MPI(MPI_Win_flush(0, win));
    return before;
  }
};

UnitTickets::UnitTickets(const Communicator& world, std::vector<std::uint64_t> pending, Schedule schedule,
                         int group_index, int num_groups)
    : window_(std::make_unique<Window>()) {
  window_->world = &world;
  window_->pending = std::move(pending);
  window_->schedule = schedule;
  window_->next_static = static_cast<std::uint64_t>(group_index);
  window_->stride = static_cast<std::uint64_t>(num_groups);
  if (world.handle() == nullptr || world.size() == 1) return;
  const MPI_Aint bytes = world.rank() == 0 ? kNumCounters * static_cast<MPI_Aint>(sizeof(std::uint64_t)) : 0;
  MAGISTER_CHECK_MPI(MPI_Win_allocate(bytes, sizeof(std::uint64_t), MPI_INFO_NULL, world.handle()->comm,
                                      &window_->memory, &window_->win));
  MPI_Win_set_errhandler(window_->win, MPI_ERRORS_RETURN);
  if (world.rank() == 0) {
    for (int i = 0; i < kNumCounters; ++i) window_->memory[i] = 0;
  }
  MAGISTER_CHECK_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_->win));
  MAGISTER_CHECK_MPI(MPI_Win_sync(window_->win));
  world.barrier();
}

UnitTickets::~UnitTickets() = default;

std::optional<std::uint64_t> UnitTickets::draw() {
  Window& window = *window_;
  if (stop_requested()) return std::nullopt;
  std::uint64_t ticket = 0;
  if (window.schedule == Schedule::kStatic) {
    ticket = window.next_static;
    window.next_static += window.stride;
  } else {
    ticket = window.fetch_add(kNextTicket, 1);
  }
  if (ticket >= window.pending.size()) return std::nullopt;
  return window.pending[ticket];
}

void UnitTickets::report_done(std::uint64_t num_tokens) {
  window_->fetch_add(kTokensDone, num_tokens);
  window_->fetch_add(kUnitsDone, 1);
}

void UnitTickets::request_stop() { window_->fetch_add(kStop, 1); }
bool UnitTickets::stop_requested() { return window_->fetch_add(kStop, 0) != 0; }

UnitTickets::Progress UnitTickets::progress() {
  return {window_->fetch_add(kUnitsDone, 0), window_->fetch_add(kTokensDone, 0)};
}

void UnitTickets::free() {
  if (window_->win == MPI_WIN_NULL) return;
  window_->world->wait_for_all();
  MAGISTER_CHECK_MPI(MPI_Win_unlock_all(window_->win));
  MAGISTER_CHECK_MPI(MPI_Win_free(&window_->win));
}

}  // namespace magister
