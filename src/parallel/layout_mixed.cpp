// See layout_mixed.h. The algorithm is greedy: 100,000 groups take seconds, and its rule is short enough to document.
#include "parallel/layout_mixed.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string_view>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/units_of_measure.h"

namespace magister {
namespace {

using Parts = std::vector<GroupShares::Part>;

// Ranks of one host with equal numbers of devices that are in no group yet, smallest memory first.
struct Cell {
  std::string host;
  int devices = 1;          // per rank
  std::size_t ranks = 0;    // number at the start
  std::deque<int> free;     // world ranks
  std::vector<bool> fills;  // index: number of ranks; true if so many ranks can be divided into groups
};

// Number of ranks that a group of this size takes; 1 also if one rank is divided into several such groups; 0: the size
// does not fit.
std::size_t ranks_of(int size, int devices) {
  if (size % devices == 0) return static_cast<std::size_t>(size / devices);
  return devices % size == 0 ? 1 : 0;
}

std::vector<bool> fills_of(const Parts& parts, int devices, std::size_t most) {
  std::vector<bool> fills(most + 1, false);
  fills[0] = true;
  for (std::size_t ranks = 1; ranks <= most; ++ranks) {
    for (const auto& part : parts) {
      const std::size_t takes = ranks_of(part.size, devices);
      if (takes > 0 && takes <= ranks && fills[ranks - takes]) fills[ranks] = true;
    }
  }
  return fills;
}

class Placing {
 public:
  Placing(const std::vector<RankProbe>& ranks, const std::vector<RankMemory>& memory, const LayoutConfig& config)
      : memory_(memory), config_(config), parts_(config.shares.parts()), placed_(parts_.size()) {
    std::map<std::pair<int, int>, Cell> cells;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Cell& cell = cells[{ranks[r].host_index, memory[r].devices}];
      cell.host = ranks[r].host;
      cell.devices = memory[r].devices;
      cell.free.push_back(static_cast<int>(r));
    }
    for (auto& [key, cell] : cells) {
      cell.ranks = cell.free.size();
      cell.fills = fills_of(parts_, cell.devices, cell.ranks);
      std::stable_sort(cell.free.begin(), cell.free.end(),
                       [&](int a, int b) { return of(a).total_bytes < of(b).total_bytes; });
      cells_.push_back(std::move(cell));
    }
    for (const Cell& cell : cells_) {
      if (!cell.fills[cell.ranks]) refuse(fmt::format("{} cannot be divided into such groups", describe_cell(cell)));
    }
  }

  // World ranks of every group, or of every rank that is divided into groups, by index of the size.
  std::vector<std::vector<std::vector<int>>> place() {
    std::vector<bool> full(parts_.size(), false);
    for (std::size_t i = next(full); i < parts_.size(); i = next(full)) {
      std::vector<int> ranks = take(i);
      if (ranks.empty()) {
        full[i] = true;
      } else {
        devices_[i] += static_cast<std::int64_t>(ranks.size()) * of(ranks.front()).devices;
        placed_[i].push_back(std::move(ranks));
      }
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (placed_[i].empty())
        refuse(fmt::format("there would be no group of {}{}", parts_[i].size, describe_needed(i)));
    }
    for (const Cell& cell : cells_) {
      if (!cell.free.empty())
        refuse(fmt::format("{} of {} would be left over", describe_left_over(cell), describe_cell(cell)));
    }
    return placed_;
  }

 private:
  const RankMemory& of(int rank) const { return memory_[static_cast<std::size_t>(rank)]; }

  // The size with the largest share per placed device; parts_.size() if all sizes are full.
  std::size_t next(const std::vector<bool>& full) const {
    std::size_t best = parts_.size();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (full[i]) continue;
      if (best == parts_.size() || parts_[i].share * devices_[best] > parts_[best].share * devices_[i]) best = i;
    }
    return best;
  }

  // Ranks of a cell that have enough memory for a group of this size, smallest first; empty if there are too few.
  std::vector<int> candidates(const Cell& cell, std::size_t part) const {
    const std::size_t wanted = ranks_of(parts_[part].size, cell.devices);
    if (wanted == 0 || wanted > cell.free.size() || !cell.fills[cell.free.size() - wanted]) return {};
    const std::uint64_t needed = config_.needed_bytes.empty() ? 0 : config_.needed_bytes[part];
    std::vector<int> any;  // of different cards, used if no kind of card has enough
    std::map<std::string_view, std::vector<int>> like;
    for (const int rank : cell.free) {
      if (of(rank).free_bytes < needed) continue;
      if (any.size() < wanted) any.push_back(rank);
      std::vector<int>& same = like[of(rank).cards];
      same.push_back(rank);
      if (same.size() == wanted) return same;
    }
    return any.size() == wanted ? any : std::vector<int>();
  }

  // Takes the candidates with the smallest memory, from the first host in a tie; empty if there are none.
  std::vector<int> take(std::size_t part) {
    Cell* from = nullptr;
    std::vector<int> best;
    for (Cell& cell : cells_) {
      std::vector<int> ranks = candidates(cell, part);
      if (ranks.empty() || (from != nullptr && of(ranks.back()).total_bytes >= of(best.back()).total_bytes)) continue;
      from = &cell;
      best = std::move(ranks);
      if (of(best.back()).total_bytes == kUnknownMemory) break;
    }
    for (const int rank : best) from->free.erase(std::find(from->free.begin(), from->free.end(), rank));
    std::sort(best.begin(), best.end());
    return best;
  }

  static std::string describe_cell(const Cell& cell) {
    return fmt::format("{} ({} rank{} of {} device{})", printable(cell.host, 60), cell.ranks,
                       cell.ranks == 1 ? "" : "s", cell.devices, cell.devices == 1 ? "" : "s");
  }
  static std::string describe_left_over(const Cell& cell) {
    return fmt::format("{} rank{}", cell.free.size(), cell.free.size() == 1 ? "" : "s");
  }
  std::string describe_needed(std::size_t part) const {
    return config_.needed_bytes.empty()
               ? ""
               : fmt::format(", whose GPUs need {} free each", format_bytes(config_.needed_bytes[part]));
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    constexpr std::size_t kShown = 16;
    std::string hosts;
    for (std::size_t i = 0; i < std::min(kShown, cells_.size()); ++i)
      hosts += (i == 0 ? "" : ", ") + describe_cell(cells_[i]);
    if (cells_.size() > kShown) hosts += ", ...";
    fail(
        ExitCode::kConfig,
        "{}: groups of {} with shares of {} on {}: {} (units of each size wait for a group of that size, a group stays "
        "inside one host and is whole ranks or a part of a rank that has no other size, and no device may be left "
        "over); change sizes or ranks, or start a rank for every device",
        config_.sizes_place.empty() ? "layout.gpus_per_group" : config_.sizes_place, config_.shares.sizes(),
        config_.shares.shares(), hosts, problem);
  }

  const std::vector<RankMemory>& memory_;
  const LayoutConfig& config_;
  const Parts& parts_;
  std::vector<Cell> cells_;  // in order of hosts
  std::vector<std::vector<std::vector<int>>> placed_;
  std::vector<std::int64_t> devices_ = std::vector<std::int64_t>(parts_.size(), 0);  // in groups, by size
};

}  // namespace

void place_sizes(LayoutSolution& solution, const std::vector<RankProbe>& ranks, const std::vector<RankMemory>& memory,
                 const LayoutConfig& config) {
  const Parts& parts = config.shares.parts();
  solution.tp_size = parts.front().size;
  solution.groups_of_size.assign(parts.size(), 0);
  solution.places.assign(ranks.size(), {});
  // The first rank of each rank's group; groups are numbered in order of these ranks.
  std::vector<int> first_rank(ranks.size());
  const auto placed = Placing(ranks, memory, config).place();
  for (std::size_t part = 0; part < parts.size(); ++part) {
    for (const std::vector<int>& members : placed[part]) {
      for (std::size_t i = 0; i < members.size(); ++i) {
        const auto rank = static_cast<std::size_t>(members[i]);
        first_rank[rank] = members.front();
        RankPlace& place = solution.places[rank];
        place.group_size = parts[part].size;
        place.groups = std::max(1, memory[rank].devices / place.group_size);
        place.first_tp_rank = static_cast<int>(i) * memory[rank].devices % place.group_size;
      }
    }
  }
  int num_groups = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    RankPlace& place = solution.places[r];
    if (const auto first = static_cast<std::size_t>(first_rank[r]); first != r) {
      place.group_index = solution.places[first].group_index;
      place.first_of_size = solution.places[first].first_of_size;
      continue;
    }
    place.group_index = std::exchange(num_groups, num_groups + place.groups);
    int& of_size = solution.groups_of_size[config.shares.part_of(place.group_size)];
    place.first_of_size = std::exchange(of_size, of_size + place.groups);
  }
  solution.num_groups = num_groups;
}

}  // namespace magister
