#include "app/run_locks.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>

#include "app/on_rank_zero.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

// False for a file that is no results file; its task then reports that.
bool is_complete(const std::string& results_path) {
  try {
    return ResultsFile::state_on_disk(results_path) == ResultsFile::State::kComplete;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

RunLocks::RunLocks(const Communicator& world, const Experiment& experiment, bool fresh)
    : held_(experiment.tasks().size()), locks_(experiment.tasks().size()) {
  std::vector<std::size_t> order(locks_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return experiment.results_path(a) < experiment.results_path(b); });
  std::vector<std::uint8_t> held(locks_.size(), 0);
  on_rank_zero(world, [&] {
    const Communicator alone;
    for (const std::size_t i : order) {
      const std::string path = experiment.results_path(i);
      if (!fresh && is_complete(path)) continue;
      make_folders(std::filesystem::path(path).parent_path().string());
      locks_[i].emplace(alone, path);
      held[i] = 1;
    }
    return ExitCode::kDone;
  });
  if (!held.empty()) world.broadcast(held.data(), held.size(), 0);
  std::copy(held.begin(), held.end(), held_.begin());
}

}  // namespace magister
