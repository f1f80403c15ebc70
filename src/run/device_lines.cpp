// See device_lines.h. Rows are in the order of ranks; the rows of a group are consecutive, except with groups of
// several sizes.
#include "magister/run/device_lines.h"

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/units_of_measure.h"

namespace magister {
namespace {

constexpr std::size_t kMostLines = 16, kFirstLines = 8;

using Group = std::vector<const DeviceRow*>;

std::map<int, Group> by_group(const std::vector<DeviceRow>& devices) {
  std::map<int, Group> groups;
  for (const DeviceRow& row : devices) groups[row.group_index].push_back(&row);
  return groups;
}

// "cuda:0,1 on node0 and cuda:0,1 on node1", "2 cpu shards on node0".
std::string places_of(const Group& group) {
  std::vector<std::pair<std::string, std::vector<const DeviceRow*>>> hosts;
  for (const DeviceRow* row : group) {
    if (hosts.empty() || hosts.back().first != row->host) hosts.push_back({row->host, {}});
    hosts.back().second.push_back(row);
  }
  std::vector<std::string> places;
  for (const auto& [host, rows] : hosts) {
    std::vector<int> indices;
    for (const DeviceRow* row : rows) {
      if (row->gpu) indices.push_back(row->gpu->index);
    }
    const std::string devices = !indices.empty()   ? fmt::format("cuda:{}", fmt::join(indices, ","))
                                : rows.size() == 1 ? printable(rows.front()->device, 120)
                                                   : fmt::format("{} cpu shards", rows.size());
    places.push_back(fmt::format("{} on {}", devices, printable(host, 60)));
  }
  return fmt::format("{}", fmt::join(places, " and "));
}

// "A100-80GB, ranks 4 and 5"; empty: there are no details.
std::string details_of(const Group& group) {
  std::vector<std::string> details;
  std::set<std::string> names;
  std::set<int> ranks;
  for (const DeviceRow* row : group) {
    if (row->gpu) names.insert(printable(row->gpu->name, 60));
    ranks.insert(row->world_rank);
  }
  if (!names.empty()) details.push_back(fmt::format("{}", fmt::join(names, " and ")));
  if (ranks.size() == 2) details.push_back(fmt::format("ranks {} and {}", *ranks.begin(), *ranks.rbegin()));
  const bool in_a_row = *ranks.rbegin() - *ranks.begin() + 1 == static_cast<int>(ranks.size());
  if (ranks.size() > 2)
    details.push_back(in_a_row ? fmt::format("ranks {} to {}", *ranks.begin(), *ranks.rbegin())
                               : fmt::format("ranks {}", fmt::join(ranks, ", ")));
  return details.empty() ? "" : fmt::format(" ({})", fmt::join(details, ", "));
}

// One line for all groups that have no line of their own.
std::string others_line(const std::map<int, Group>& groups, std::size_t skipped) {
  std::map<std::size_t, std::size_t, std::greater<>> of_size;
  std::set<int> ranks;
  std::set<std::string> hosts;
  std::size_t number = 0;
  for (const auto& [index, group] : groups) {
    if (number++ < skipped) continue;
    ++of_size[group.size()];
    for (const DeviceRow* row : group) {
      ranks.insert(row->world_rank);
      hosts.insert(row->host);
    }
  }
  std::vector<std::string> sizes;
  for (const auto& [size, count] : of_size)
    sizes.push_back(fmt::format("{} of {}", count, format_count(size, "device")));
  return fmt::format("  groups {} to {}: {}, ranks {} to {} on {}\n",
                     std::next(groups.begin(), static_cast<std::ptrdiff_t>(skipped))->first, groups.rbegin()->first,
                     fmt::join(sizes, " and "), *ranks.begin(), *ranks.rbegin(), format_count(hosts.size(), "host"));
}

}  // namespace

std::string group_lines(const std::vector<DeviceRow>& devices) {
  const std::map<int, Group> groups = by_group(devices);
  const std::size_t shown = groups.size() > kMostLines ? kFirstLines : groups.size();
  std::string out;
  std::size_t number = 0;
  for (const auto& [index, group] : groups) {
    if (number++ == shown) break;
    out += fmt::format("  group {}: rank {}, {}{}\n", index, group.front()->world_rank, places_of(group),
                       details_of(group));
  }
  return groups.size() > shown ? out + others_line(groups, shown) : out;
}

nlohmann::ordered_json device_rows(const std::vector<DeviceRow>& devices, const std::vector<std::uint64_t>& job_ranks) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const DeviceRow& row : devices) {
    nlohmann::ordered_json one = {{"rank", job_ranks.at(static_cast<std::size_t>(row.world_rank))},
                                  {"host", row.host},
                                  {"group", row.group_index},
                                  {"shard", row.tp_rank},
                                  {"device", row.gpu ? row.gpu->name : row.device}};
    if (row.gpu) one.update({{"index", row.gpu->index}, {"uuid", row.gpu->uuid}, {"pci", row.gpu->pci}});
    rows.push_back(std::move(one));
  }
  return rows;
}

}  // namespace magister
