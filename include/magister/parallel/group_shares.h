// GroupShares: which size of group computes a unit, as a function of the unit's number and of the experiment alone (decision 042). The last bits
// of a row depend on its group's size, so any number of groups of each size writes the same bytes. Sizes alternate as evenly as their
// shares allow: every round of sum(shares) units has each size's share, in the order of smooth weighted round robin (as in nginx's
// ngx_http_upstream_round_robin.c).
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
    int size = 1;   // devices of a group
    int share = 1;  // of a round's units
    bool operator==(const Part&) const = default;
  };

  // One size for all units.
  explicit GroupShares(int size = 1) : GroupShares(std::vector<Part>{{size, 1}}) {}
  // Sizes that differ, in any order, with shares of 1 to kMostShare; 1 to kMostSizes of them. Kept largest first, shares divided by what divides all.
  explicit GroupShares(std::vector<Part> parts);

  bool mixed() const { return parts_.size() > 1; }
  const std::vector<Part>& parts() const { return parts_; }
  // Place of a size in parts(); the size is one of them.
  std::size_t part_of(int size) const;
  int size_of(std::uint64_t unit) const { return parts_[rounds_[unit % rounds_.size()]].size; }
  // Of these units those that groups of a size compute.
  UnitSet units_of(int size, const UnitSet& units) const;
  // Units 0 to num_units - 1 by place in parts().
  std::vector<std::uint64_t> units_by_part(std::uint64_t num_units) const;
  // "4, 2" and "3, 1".
  std::string sizes() const;
  std::string shares() const;

 private:
  std::vector<Part> parts_;
  std::vector<std::uint8_t> rounds_;  // places in parts_, of each unit of a round
};

}  // namespace magister
