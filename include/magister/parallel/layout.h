// Layout: which rank holds which shard of which copy of the model. World ranks x devices per rank give the list of
// devices. Every gpus_per_group consecutive devices form a GPU group: whole ranks, or a part of one rank. On a machine
// without GPUs a "device" is one CPU shard. For groups of several sizes see parallel/layout_mixed.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/parallel/group_shares.h"

namespace magister {

// A rank's position among the ranks of its host, and among those of them that see the same GPUs.
struct HostPlace {
  int rank = 0, size = 1;
  int gpu_rank = 0, gpu_size = 1;
};
// Collective over world.
HostPlace host_place(const Communicator& world);

// The keys of `layout` in the experiment. GpuGroup::resolve() assigns shards to ranks by them.
struct LayoutConfig {
  int gpus_per_group = 0;    // 0 = auto
  GroupShares shares{};      // mixed(): groups of several sizes, instead of gpus_per_group
  std::string sizes_place;   // where the experiment sets the sizes, for messages
  std::vector<int> devices;  // empty = auto
  bool cpu_only = false;     // devices: cpu
  int shards_per_rank = 1;   // CPU only
  int devices_per_rank = 0;  // GPUs of a rank; 0 = auto: an equal part of those that it sees
  // Set by the caller, not by the experiment: true if the work can be done on GPUs. If not, `auto` means CPU.
  bool gpus_usable = false;
  bool share_gpus = false;  // see shares_gpus()
  // Set if the ranks that resolve are a part of the job: this rank's position in the whole job, which decides its GPU.
  // most_threads then limits the threads of a shard.
  std::optional<HostPlace> place_in_job{};
  int most_threads = 0;
  // Set by the task for groups of several sizes. needed_bytes: memory that each GPU of a group needs, by index in
  // shares.parts() (empty: unknown). kept_bytes: memory by UUID that counts as free in addition, because it is held by
  // earlier tasks of this job.
  std::vector<std::uint64_t> needed_bytes{};
  std::map<std::string, std::uint64_t> kept_bytes{};
  bool fast_collectives = false;  // sums over shards (by NCCL) and of gradients may differ from run to run
};

struct GpuDevice {
  int index = 0;  // CUDA runtime index inside this process
  std::string name;
  std::string uuid;
  std::string pci{};  // bus id, "0000:1b:00.0"; empty: unknown
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // as reported by NVML; total_bytes without NVML
  int compute_capability = 0;    // 90 for 9.0
};

// GPUs visible to this process, with CUDA_VISIBLE_DEVICES applied. Empty without a driver or in a build without CUDA.
std::vector<GpuDevice> discover_gpus();
// Returns whether these GPUs are emulated on the host, which runs their kernels. MAGISTER_GPUS_ON_HOST in the
// environment lists their memories in MiB, such as "81920,40960", for tests of layouts. Also true for a planned cluster
// (gpu_cards.h).
bool gpus_on_host();
// Versions of the CUDA runtime, the driver and NCCL, or "none" (for --version and doctor).
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

// This rank's position: a part of a group, a whole group, or several whole groups. members(): the ranks of its group.
// leaders(): the ranks that hold tp_rank 0 of a group ("alone" on other ranks).
class GpuGroup {
 public:
  // Computes and checks the layout. Throws Error(kConfig), the same on every rank and with every value it used, if the
  // layout does not divide or two ranks see one GPU. Throws Error(kUsage) if this looks like a singleton launch inside
  // a larger scheduler allocation. Group size `auto` is the devices of one rank. A shard gets its part of the cores
  // that its rank may use; ranks of a host share cores fairly. Collective over world.
  static GpuGroup resolve(const Communicator& world, const LayoutConfig& config);

  int group_index() const { return group_index_; }  // of this rank's first group
  int groups_here() const { return groups_here_; }  // whole groups of this rank; also 1 if it holds a part of one
  int num_groups() const { return num_groups_; }
  int tp_size() const { return tp_size_; }  // of this rank's groups
  // shares(): the size that computes each unit. first_of_size(), groups_of_size(): index of this rank's first group
  // among the groups of its size, and their number.
  const GroupShares& shares() const { return shares_; }
  int first_of_size() const { return first_of_size_; }
  int groups_of_size() const { return groups_of_size_; }
  int shards_here() const { return shards_here_; }  // on this rank, ordered by group, then by tp_rank
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

// The table of `plan`: the result of resolve() for these ranks. If num_ranks differs from their number, it is the
// result for num_ranks ranks like this one, on hosts like this one (invented_ranks()). Throws as resolve() does.
// Collective over world.
std::vector<DeviceRow> plan_layout(const Communicator& world, int num_ranks, const LayoutConfig& config);
// Returns whether groups of group_size devices are whole ranks of this table, or parts of one rank, with none left
// over. Local.
bool group_size_divides(const std::vector<DeviceRow>& table, int group_size);

// Returns whether several ranks may use one GPU: MAGISTER_SHARE_GPUS=1 in the environment, for tests of groups on one
// GPU.
bool shares_gpus();

// Throws Error(kUsage) if MPI sees one rank but the scheduler's environment shows that more were launched
// (SLURM_NTASKS, PMI_SIZE, OMPI_COMM_WORLD_SIZE ...): with a launcher that MPI does not know, N ranks would run as N
// separate jobs. The innermost launcher decides, so `mpirun -np 1` inside a larger allocation is accepted.
// MAGISTER_ALLOW_SINGLETON=1 in the environment disables the check.
void refuse_singleton_launch(int world_size);

}  // namespace magister
