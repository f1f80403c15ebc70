// GroupShares: the group size that computes a unit, as a function of the unit's number and of the experiment alone
// (decision 042). The last bits of a row depend on the size of its group, so the bytes do not depend on the number of
// groups of each size. Sizes alternate as evenly as their shares allow: every round of sum(shares) units gives each
// size its share, in the order of smooth weighted round robin (as in nginx's ngx_http_upstream_round_robin.c).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/core/unit_set.h"

namespace magister {

class GroupShares {
 public:
  static constexpr std::size_t kMostSizes = 4;
  static constexpr int kMostShare = 4096;

  struct Part {
    int size = 1;   // devices per group
    int share = 1;  // units per round
    bool operator==(const Part&) const = default;
  };

  // One size for all units.
  explicit GroupShares(int size = 1) : GroupShares(std::vector<Part>{{size, 1}}) {}
  // Different sizes in any order, 1 to kMostSizes of them, with shares of 1 to kMostShare. They are sorted with the
  // largest size first, and the shares are divided by their greatest common divisor.
  explicit GroupShares(std::vector<Part> parts);

  bool mixed() const { return parts_.size() > 1; }
  const std::vector<Part>& parts() const { return parts_; }
  // Index of a size in parts(); the size must be one of them.
  std::size_t part_of(int size) const;
  int size_of(std::uint64_t unit) const { return parts_[rounds_[unit % rounds_.size()]].size; }
  // The subset of these units that groups of this size compute.
  UnitSet units_of(int size, const UnitSet& units) const;
  // Counts of the units 0 to num_units - 1 by index in parts().
  std::vector<std::uint64_t> units_by_part(std::uint64_t num_units) const;
  // Lists for messages, such as "4, 2" and "3, 1".
  std::string sizes() const;
  std::string shares() const;

 private:
  std::vector<Part> parts_;
  std::vector<std::uint8_t> rounds_;  // index in parts_ for each unit of a round
};

}  // namespace magister
