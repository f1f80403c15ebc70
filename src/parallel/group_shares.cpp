// The order of a round is computed once, in integers.
#include "magister/parallel/group_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "magister/core/error.h"

namespace magister {
namespace {

std::string listed(const std::vector<GroupShares::Part>& parts, int GroupShares::Part::* field) {
  std::string text;
  for (const GroupShares::Part& part : parts) text += fmt::format("{}{}", text.empty() ? "" : ", ", part.*field);
  return text;
}

// Each unit goes to the size that is furthest below its share; in a tie, to the larger size.
std::vector<std::uint8_t> round_of(const std::vector<GroupShares::Part>& parts) {
  int all = 0;
  for (const auto& part : parts) all += part.share;
  std::vector<int> lag(parts.size(), 0);
  std::vector<std::uint8_t> round;
  for (int unit = 0; unit < all; ++unit) {
    for (std::size_t i = 0; i < parts.size(); ++i) lag[i] += parts[i].share;
    const auto next = static_cast<std::size_t>(std::max_element(lag.begin(), lag.end()) - lag.begin());
    lag[next] -= all;
    round.push_back(static_cast<std::uint8_t>(next));
  }
  return round;
}

}  // namespace

GroupShares::GroupShares(std::vector<Part> parts) : parts_(std::move(parts)) {
  std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.size > b.size; });
  int divisor = 0;
  for (const Part& part : parts_) {
    const bool twice = &part != &parts_.front() && (&part)[-1].size == part.size;
    MAGISTER_CHECK(
        part.size >= 1 && part.share >= 1 && part.share <= kMostShare && !twice && parts_.size() <= kMostSizes,
        ExitCode::kInternal, "groups of {} with shares of {} (no such division of units); report this", sizes(),
        shares());
    divisor = std::gcd(divisor, part.share);
  }
  for (Part& part : parts_) part.share /= divisor;
  rounds_ = round_of(parts_);
}

std::size_t GroupShares::part_of(int size) const {
  const auto at = std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.size == size; });
  MAGISTER_CHECK(at != parts_.end(), ExitCode::kInternal, "no group of {} among those of {}; report this", size,
                 sizes());
  return static_cast<std::size_t>(at - parts_.begin());
}

UnitSet GroupShares::units_of(int size, const UnitSet& units) const {
  if (!mixed()) return units;
  std::uint64_t next = units.next(0);
  return {units.num_units(), [&](std::uint64_t first, std::span<std::uint8_t> flags) {
            std::fill(flags.begin(), flags.end(), std::uint8_t{1});
            for (; next < first + flags.size(); next = units.next(next + 1))
              if (size_of(next) == size) flags[next - first] = 0;
          }};
}

std::vector<std::uint64_t> GroupShares::units_by_part(std::uint64_t num_units) const {
  std::vector<std::uint64_t> counts(parts_.size(), 0);
  const std::uint64_t rounds = num_units / rounds_.size();
  for (std::size_t i = 0; i < parts_.size(); ++i) counts[i] = rounds * static_cast<std::uint64_t>(parts_[i].share);
  for (std::uint64_t unit = rounds * rounds_.size(); unit < num_units; ++unit) ++counts[rounds_[unit % rounds_.size()]];
  return counts;
}

std::string GroupShares::sizes() const { return listed(parts_, &Part::size); }
std::string GroupShares::shares() const { return listed(parts_, &Part::share); }

}  // namespace magister
