// Two kinds of messages between rank 0 and the first rank of every group. A task takes seconds at least, so the 5 ms
// between polls do not matter.
#include "magister/parallel/task_dispatcher.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "parallel/check.h"
#include "parallel/communicator_handle.h"

namespace magister {
namespace {

constexpr int kFree = 1, kStart = 2;  // tags
constexpr std::int64_t kNone = -1;
constexpr std::chrono::milliseconds kPause{5};
constexpr int kLooksWithoutReport = 4;  // polls between decisions

struct FreeMessage {
  std::int64_t task = kNone;
  std::uint64_t outcome = 0;
};
// Followed by the team's groups, one i32 each.
struct StartMessage {
  std::int64_t task = kNone;
  std::int64_t num_groups = 0;
};

}  // namespace

int TaskDispatcher::num_groups(int num_ranks, int ranks_a_group) { return std::max(num_ranks / ranks_a_group, 1); }

TaskDispatcher::TaskDispatcher(const Communicator& world, int ranks_a_group, Decide decide)
    : world_(world),
      ranks_a_group_(ranks_a_group),
      num_groups_(num_groups(world.size(), ranks_a_group)),
      messages_(world.duplicate()),
      group_(world.split(std::min(world.rank() / ranks_a_group, num_groups_ - 1), world.rank())),
      decide_(std::move(decide)) {
  require_threads("groups cannot be told what to do while rank 0 computes");
  if (world.rank() == 0) server_ = std::thread([this] { serve(); });
}

TaskDispatcher::~TaskDispatcher() {
  stop_.store(true);
  if (server_.joinable()) server_.join();
}

std::optional<TaskDispatcher::Team> TaskDispatcher::next(const std::optional<Team>& ended, std::uint64_t outcome) {
  StartMessage start;
  std::vector<std::int32_t> groups;
  if (group_.rank() == 0) {
    FreeMessage report;
    if (ended && ended->ranks.rank() == 0) report = {static_cast<std::int64_t>(ended->task), outcome};
    messages_.send(&report, sizeof report, 0, kFree);
    messages_.receive_asleep(&start, sizeof start, 0, kStart, kPause);
    groups.resize(static_cast<std::size_t>(start.num_groups));
    if (!groups.empty()) messages_.receive(groups.data(), groups.size() * sizeof(std::int32_t), 0, kStart);
  }
  group_.wait_for_all();  // sleeps while it waits
  group_.broadcast(&start, sizeof start, 0);
  if (start.task == kNone) return std::nullopt;
  groups.resize(static_cast<std::size_t>(start.num_groups));
  group_.broadcast(groups.data(), groups.size() * sizeof(std::int32_t), 0);
  std::vector<int> ranks;
  for (const std::int32_t group : groups) {
    const int end = group + 1 == num_groups_ ? world_.size() : first_rank(group + 1);
    for (int rank = first_rank(group); rank < end; ++rank) ranks.push_back(rank);
  }
  return Team{static_cast<std::size_t>(start.task), world_.subset(ranks)};
}

void TaskDispatcher::send_start(const Start& start) const {
  const std::vector<std::int32_t> groups(start.groups.begin(), start.groups.end());
  const StartMessage message{static_cast<std::int64_t>(start.task), static_cast<std::int64_t>(groups.size())};
  for (const int group : start.groups) {
    messages_.send(&message, sizeof message, first_rank(group), kStart);
    messages_.send(groups.data(), groups.size() * sizeof(std::int32_t), first_rank(group), kStart);
  }
}

void TaskDispatcher::serve() noexcept {
  const auto look = [this]() -> std::optional<Report> {
    int waiting = 0;
    MPI_Status status;
    MAGISTER_CHECK_MPI(MPI_Iprobe(MPI_ANY_SOURCE, kFree, messages_.handle()->comm, &waiting, &status));
    if (waiting == 0) return std::nullopt;
    FreeMessage message;
    messages_.receive(&message, sizeof message, status.MPI_SOURCE, kFree);
    Report report{status.MPI_SOURCE / ranks_a_group_, {}, message.outcome};
    if (message.task != kNone) report.task = static_cast<std::size_t>(message.task);
    return report;
  };
  try {
    std::vector<bool> free(static_cast<std::size_t>(num_groups_), false);
    for (int left = num_groups_, looks = 0; left > 0 && !stop_.load();) {
      const std::optional<Report> report = look();
      if (report) {
        free[static_cast<std::size_t>(report->group)] = true;
      } else if (++looks < kLooksWithoutReport) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      looks = 0;
      const Decision decision = decide_(report);
      for (const Start& start : decision.starts) {
        for (const int group : start.groups) free[static_cast<std::size_t>(group)] = false;
        send_start(start);
      }
      if (!decision.over) continue;
      for (int group = 0; group < num_groups_; ++group) {
        if (!free[static_cast<std::size_t>(group)]) continue;
        const StartMessage leave;
        messages_.send(&leave, sizeof leave, first_rank(group), kStart);
        free[static_cast<std::size_t>(group)] = false;
        --left;
      }
    }
  } catch (const std::exception& error) {
    log_local(LogLevel::kError, "{}", error.what());
    abort_job(static_cast<int>(ExitCode::kInternal));
  }
}

}  // namespace magister
