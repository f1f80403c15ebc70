// Reads the keys one by one. The resolved experiment has sizes and shares of groups in one spelling, whatever their
// order in the file.
#include "experiment/layout_section.h"

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace magister {
namespace {

// Reads a list in gpus_per_group with its shares; no value if it is wrong.
std::optional<GroupShares> read_sizes(ConfigNode& node, const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> shares = node.optional_integers("shares", 1, GroupShares::kMostShare);
  const bool given = node.has("shares");
  if (sizes.size() < 2 || sizes.size() > GroupShares::kMostSizes) {
    node.reject("gpus_per_group",
                "a list of {} (2 to {} sizes of groups share the units; a single one is no list); write for example 4, "
                "or [4, 2]",
                sizes.size(), GroupShares::kMostSizes);
    return std::nullopt;
  }
  if (std::set<std::int64_t>(sizes.begin(), sizes.end()).size() != sizes.size()) {
    node.reject("gpus_per_group",
                "a size is named twice (groups of one size draw from one share of the units); name each once and add "
                "up their shares");
    return std::nullopt;
  }
  if (!given) shares = sizes;
  if (shares.size() != sizes.size()) {
    node.reject("shares",
                "{} shares for {} sizes (each size has a share of the units); write one for each, in the order of "
                "gpus_per_group",
                shares.size(), sizes.size());
    return std::nullopt;
  }
  std::vector<GroupShares::Part> parts;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    parts.push_back({static_cast<int>(sizes[i]), static_cast<int>(shares[i])});
  GroupShares all(parts);
  std::vector<std::int64_t> in_order, reduced;
  for (const auto& part : all.parts()) {
    in_order.push_back(part.size);
    reduced.push_back(part.share);
  }
  node.resolve_as("gpus_per_group", in_order);
  node.resolve_as("shares", reduced);
  return all;
}

}  // namespace

LayoutConfig read_layout(ConfigNode& root) {
  ConfigNode node = root.section("layout");
  LayoutConfig layout;
  layout.sizes_place = node.place("gpus_per_group");
  const std::vector<std::int64_t> sizes = node.integers_or_auto("gpus_per_group", 1, GroupShares::kMostShare);
  if (node.is_list("gpus_per_group")) {
    if (const auto shares = read_sizes(node, sizes)) layout.shares = *shares;
  } else {
    if (!sizes.empty()) layout.gpus_per_group = static_cast<int>(sizes.front());
    node.only_if(false,
                 "is given and gpus_per_group is no list (shares divide the units between groups of several sizes); "
                 "remove it, or write sizes such as gpus_per_group: [4, 2]")
        .optional_integers("shares", 1, GroupShares::kMostShare);
  }
  std::vector<std::int64_t> devices;
  layout.cpu_only = node.choice_or_integers("devices", {"auto", "cpu"}, "auto", "a list of GPUs such as [0, 1]",
                                            devices, 0, 1023) == "cpu";
  if (std::set<std::int64_t>(devices.begin(), devices.end()).size() != devices.size()) {
    node.reject("devices", "a device is named twice (it cannot hold two shards of a model); name each once");
  }
  layout.devices.assign(devices.begin(), devices.end());
  layout.fast_collectives = node.choice("collectives", {"reproducible", "fast"}, "reproducible") == "fast";
  layout.devices_per_rank = static_cast<int>(node.integer_or_auto("devices_per_rank", 1, 256).value_or(0));
  if (layout.devices_per_rank > 1 && layout.cpu_only) {
    node.reject("devices_per_rank",
                "more than one GPU a rank together with devices: cpu (there are none then); remove it, or set "
                "shards_per_rank");
  }
  layout.shards_per_rank = static_cast<int>(node.integer("shards_per_rank", 1, 1, 256));
  if (layout.shards_per_rank > 1 && !layout.devices.empty()) {
    node.reject("shards_per_rank",
                "more than one shard a rank together with a list of GPUs (shards inside a rank are for "
                "CPUs; a rank drives its own GPUs); remove one of the two");
  }
  node.also_called("gpus_per_group", {"tensor_parallel_size", "tp_size", "tp"});
  return layout;
}

}  // namespace magister
