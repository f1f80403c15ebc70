// Layout: who holds which shard of which copy of the model. World ranks x devices per rank give the list of devices;
// consecutive gpus_per_group devices form a GPU group: whole ranks, or a part of one rank. A device on a CPU-only
// machine is "one CPU shard". Groups of several sizes: parallel/layout_mixed.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/parallel/group_shares.h"

namespace magister {

// A rank's place among those of its host, and among those of them that see the same GPUs.
struct HostPlace {
  int rank = 0, size = 1;
  int gpu_rank = 0, gpu_size = 1;
};
// Collective over world.
HostPlace host_place(const Communicator& world);

// What layout: says in the experiment; GpuGroup::resolve() makes of it who holds what.
struct LayoutConfig {
  int gpus_per_group = 0;    // 0 = auto
  GroupShares shares{};      // of several sizes (mixed()), in place of gpus_per_group
  std::string sizes_place;   // of that key in the experiment, for messages
  std::vector<int> devices;  // empty = auto
  bool cpu_only = false;     // devices: cpu
  int shards_per_rank = 1;   // CPU only
  int devices_per_rank = 0;  // GPUs of a rank; 0 = auto: its even part of those that it sees
  // Said by the task (Task::uses_gpus), not by the experiment: whether it can compute on GPUs. Without it `auto` means CPU.
  bool gpus_usable = false;
  bool share_gpus = false;  // see shares_gpus()
  // Where the ranks that resolve are a part of a job: this rank's place in all of it, which decides its GPU, and the threads of a shard at most.
  std::optional<HostPlace> place_in_job{};
  int most_threads = 0;
  // Said by the task for groups of several sizes: what each of a group's GPUs must have free, by place in shares.parts() (empty: unknown), and
  // what counts as free beside that, by UUID: earlier tasks of this job left it there.
  std::vector<std::uint64_t> needed_bytes{};
  std::map<std::string, std::uint64_t> kept_bytes{};
  bool fast_collectives = false;  // sums over shards (GPUs: NCCL chooses) and of gradients may differ from run to run
};

struct GpuDevice {
  int index = 0;  // CUDA runtime index inside this process
  std::string name;
  std::string uuid;
  std::string pci{};  // bus id, "0000:1b:00.0"; empty: unknown
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // as NVML says, total_bytes without it
  int compute_capability = 0;    // 90 for 9.0
};

// GPUs visible to this process, honouring CUDA_VISIBLE_DEVICES. Empty without a driver or in a CPU-only build.
std::vector<GpuDevice> discover_gpus();
// Whether those are the host's, whose kernels it runs: MAGISTER_GPUS_ON_HOST in the environment, a list of their memories in MiB such as
// "81920,40960", for tests of layouts; or those of a cluster that is planned (gpu_cards.h).
bool gpus_on_host();
// Versions of CUDA runtime, driver, NCCL, or "none" (for --version and doctor).
std::string cuda_runtime_version();
std::string cuda_driver_version();
std::string nccl_version();

// One row of the table that `plan` and `doctor` print.
struct DeviceRow {
  int world_rank = 0;
  std::string host;
  int group_index = 0;
  int tp_rank = 0;
  std::string device;  // "cpu shard 0 (1 thread)" or "cuda:0 NVIDIA H200 UUID"
  std::optional<GpuDevice> gpu{};
  int group_size = 1;
};

// This rank's place: a group of which it holds a part or all, or several whole groups. members(): the ranks of its
// group; leaders(): the ranks that hold tp_rank 0 of a group ("alone" elsewhere).
class GpuGroup {
 public:
  // Decides and checks everything; throws Error(kConfig), the same on every rank, with every value it saw when the
  // layout does not divide or two ranks see one GPU, and Error(kUsage) when this looks like a singleton launch inside a
  // larger scheduler allocation. Group size `auto` is one rank's devices. Threads: each shard's part of the cores that
  // its rank may use, shared fairly with the other ranks of the host. Collective over world.
  static GpuGroup resolve(const Communicator& world, const LayoutConfig& config);

  int group_index() const { return group_index_; }  // of this rank's first group
  int groups_here() const { return groups_here_; }  // whole groups of this rank; 1 also where it holds a part of one
  int num_groups() const { return num_groups_; }
  int tp_size() const { return tp_size_; }  // of this rank's groups
  // Which size computes which unit; this rank's place among the groups of its size.
  const GroupShares& shares() const { return shares_; }
  int first_of_size() const { return first_of_size_; }
  int groups_of_size() const { return groups_of_size_; }
  int shards_here() const { return shards_here_; }  // of this rank, over all its groups: group by group, by tp_rank
  // tp_rank of this rank's first shard.
  int first_tp_rank() const { return first_tp_rank_; }
  bool is_leader() const { return first_tp_rank_ == 0; }
  int threads_per_shard() const { return threads_per_shard_; }
  bool on_gpu() const { return on_gpu_; }
  const std::vector<int>& devices() const { return devices_; }  // CUDA indices, [shards_here]; empty on CPUs
  bool fast_collectives() const { return fast_collectives_; }
  const Communicator& members() const { return members_; }
  const Communicator& leaders() const { return leaders_; }
  const std::vector<DeviceRow>& table() const { return table_; }  // whole world, on every rank

 private:
  int group_index_ = 0, groups_here_ = 1, num_groups_ = 1, tp_size_ = 1, shards_here_ = 1, first_tp_rank_ = 0;
  GroupShares shares_;
  int first_of_size_ = 0, groups_of_size_ = 1;
  int threads_per_shard_ = 1;
  std::vector<int> devices_;
  bool on_gpu_ = false, fast_collectives_ = false;
  Communicator members_, leaders_;
  std::vector<DeviceRow> table_;
};

// The table of `plan`: what resolve() would give these ranks, or, where num_ranks is another number than theirs, so many like this one, on
// as many hosts like this one as they need for a GPU each. Throws as resolve() would. Collective over world.
std::vector<DeviceRow> plan_layout(const Communicator& world, int num_ranks, const LayoutConfig& config);
// Whether groups of so many devices are whole ranks of this table, or parts of one, and none is left over. Local.
bool group_size_divides(const std::vector<DeviceRow>& table, int group_size);

// Whether several ranks may have one GPU: MAGISTER_SHARE_GPUS=1 in the environment, for tests of groups on one GPU.
bool shares_gpus();

// Throws Error(kUsage) when MPI sees one rank but the scheduler's environment says that more were launched
// (SLURM_NTASKS, PMI_SIZE, OMPI_COMM_WORLD_SIZE ...): a launcher that MPI does not know would make N singleton runs.
// The innermost launcher decides, so `mpirun -np 1` inside a larger allocation is taken at its word.
// MAGISTER_ALLOW_SINGLETON=1 in the environment silences it.
void refuse_singleton_launch(int world_size);

}  // namespace magister
