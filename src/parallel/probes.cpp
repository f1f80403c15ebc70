// Probes are sent between ranks as lines of text.
#include "magister/parallel/probes.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/parallel/communicator.h"
#include "parallel/cores.h"

namespace magister {
namespace {

// One field per line; line breaks in names become spaces.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string to_text(const RankProbe& probe) {
  std::ostringstream out;
  out << one_line(probe.host) << '\n'
      << one_line(probe.quota_group) << '\n'
      << probe.quota_cores << ' ' << probe.cores.size();
  for (const int core : probe.cores) out << ' ' << core;
  out << '\n' << probe.gpus.size() << '\n';
  for (const GpuDevice& gpu : probe.gpus) {
    out << one_line(gpu.name) << '\n'
        << one_line(gpu.uuid) << '\n'
        << one_line(gpu.pci) << '\n'
        << gpu.index << ' ' << gpu.total_bytes << ' ' << gpu.free_bytes << ' ' << gpu.compute_capability << '\n';
  }
  return out.str();
}

RankProbe from_text(const std::string& text) {
  RankProbe probe;
  std::istringstream in(text);
  std::size_t num_cores = 0, num_gpus = 0;
  std::getline(in, probe.host);
  std::getline(in, probe.quota_group);
  in >> probe.quota_cores >> num_cores;
  for (int core = 0; num_cores > 0 && in >> core; --num_cores) probe.cores.push_back(core);
  in >> num_gpus;
  in.ignore();
  for (; num_gpus > 0 && in; --num_gpus) {
    GpuDevice gpu;
    std::getline(in, gpu.name);
    std::getline(in, gpu.uuid);
    std::getline(in, gpu.pci);
    in >> gpu.index >> gpu.total_bytes >> gpu.free_bytes >> gpu.compute_capability;
    in.ignore();
    probe.gpus.push_back(gpu);
  }
  MAGISTER_CHECK(static_cast<bool>(in), ExitCode::kInternal,
                 "the description of a rank cannot be read by another (are there different builds in one job?); start "
                 "the same program on every host");
  return probe;
}

}  // namespace

RankProbe probe_self() {
  RankProbe probe;
  probe.host = host_name();
  probe.cores = allowed_cores();
  const CpuQuota quota = cpu_quota();
  probe.quota_cores = quota.cores;
  probe.quota_group = quota.group;
  probe.gpus = discover_gpus();
  return probe;
}

std::vector<RankProbe> probe_ranks(const Communicator& world) { return probe_ranks(world, world.split_by_host()); }

// Names do not identify nodes: containers of one image may have the same name, and containers of one node different
// names.
std::vector<RankProbe> probe_ranks(const Communicator& world, const Communicator& node) {
  const std::vector<std::uint64_t> first_of_node = world.all_gather(node.min(static_cast<std::uint64_t>(world.rank())));
  std::vector<RankProbe> ranks;
  std::map<int, int> seen;
  for (const std::string& text : world.all_gather(to_text(probe_self()))) {
    RankProbe probe = from_text(text);
    probe.world_rank = static_cast<int>(ranks.size());
    probe.host_index = static_cast<int>(first_of_node[ranks.size()]);
    probe.local_rank = seen[probe.host_index]++;
    ranks.push_back(std::move(probe));
  }
  for (RankProbe& probe : ranks) probe.local_size = seen[probe.host_index];
  find_gpu_sharers(ranks);
  return ranks;
}

void find_gpu_sharers(std::vector<RankProbe>& ranks) {
  const auto sight = [](const RankProbe& rank) {
    std::vector<std::string> uuids;
    for (const GpuDevice& gpu : rank.gpus) uuids.push_back(gpu.uuid);
    return std::pair(rank.host_index, uuids);
  };
  std::map<std::pair<int, std::vector<std::string>>, int> seen;
  for (RankProbe& rank : ranks) rank.gpu_rank = seen[sight(rank)]++;
  for (RankProbe& rank : ranks) rank.gpu_size = seen[sight(rank)];
}

std::vector<int> core_shares(const std::vector<RankProbe>& ranks) {
  std::map<std::pair<int, int>, int> users_of_core;
  std::map<std::pair<int, std::string>, int> users_of_quota;
  for (const RankProbe& rank : ranks) {
    for (const int core : rank.cores) ++users_of_core[{rank.host_index, core}];
    ++users_of_quota[{rank.host_index, rank.quota_group}];
  }
  std::vector<int> shares;
  for (const RankProbe& rank : ranks) {
    double share = 0;
    for (const int core : rank.cores) share += 1.0 / users_of_core[{rank.host_index, core}];
    if (rank.quota_cores > 0) {
      share =
          std::min(share, static_cast<double>(rank.quota_cores) / users_of_quota[{rank.host_index, rank.quota_group}]);
    }
    shares.push_back(std::max(1, static_cast<int>(share + 1e-6)));  // 3 * (1.0 / 3) may be slightly below 1
  }
  return shares;
}

}  // namespace magister
