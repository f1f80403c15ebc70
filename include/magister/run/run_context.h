// What a task may use of the run it is part of, and why a run stops cleanly before its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/layout.h"
#include "magister/run/experiment_config.h"

namespace magister {

class RunLog;
class Task;
class WeightStore;

// Why a run should stop cleanly; set from signal handlers, so only lock-free atomics.
struct StopSign {
  std::atomic<int> signal{0};                         // SIGTERM, SIGINT, SIGUSR1 or SIGUSR2; 0: none
  std::atomic<std::int64_t> deadline_nanoseconds{0};  // steady clock, from --max-wall; 0: none
  bool raised() const;
  // "signal 15 (Terminated)" or "the end of the wall time"; empty when not raised.
  std::string reason() const;
};

// Asked between the small steps of everything that can take long: records, blocks of a file, tensors, passes.
using StopPoll = std::function<bool()>;

// Throws Error(kStopped), whose text nobody sees, on every rank when one of them was asked to stop. A loop that polls ends early
// on its own rank first and then comes here, so that all ranks leave at the same place. Collective over world.
void leave_if_stopped(const Communicator& world, const StopSign& stop);

// What a rank may take of its host while other parts of the job compute there, too.
struct PartOfJob {
  HostPlace place;         // in the whole job
  int most_threads = 0;    // of a shard
  int shards_on_host = 0;  // of all parts, which share its memory
  int rank = 0;            // in the whole job
};

// Equal on all ranks but for `world` and `part`.
struct RunContext {
  const Communicator& world;
  const ExperimentConfig& experiment;
  std::string results_path;     // runs/<name>/<task name>.h5
  std::string experiment_yaml;  // for the results file: as resolved, this task alone, without `output` and `run`
  bool fresh = false;           // --fresh: put an earlier result aside
  const StopSign& stop;
  RunLog& log;
  std::vector<const Task*> earlier_tasks;  // of this experiment, in order
  // What they make: on disk as it stands (`plan`); awaited, for a run opens every task before the first one computes, and what stands there
  // may be made anew; made by now.
  enum class Earlier { kOnDisk, kAwaited, kMade } earlier = Earlier::kOnDisk;
  std::optional<PartOfJob> part;   // `world` is not the whole job
  WeightStore* weights = nullptr;  // of this process; null: every task reads its model's file
  bool held = false;               // rank 0 of the job holds the results' lock, as long as the task runs
  // experiment_yaml again, once it is known what lengths are that were left to the models; null: they stay.
  std::function<void(RunContext&)> resolve{};
  StopPoll stop_poll() const {
    return [sign = &stop] { return sign->raised(); };
  }
};

// What a forward pass of a task works on, from its keys alone.
struct PassShape {
  std::uint64_t tokens = 0;           // at most, in one pass
  std::uint64_t sequence_tokens = 0;  // of the longest sequence whose keys and values are kept; 0: none are
  std::uint64_t row_bytes = 0;        // results waiting to be written
  std::uint64_t sampled_rows = 0;  // of logits of the whole vocabulary, at most, of the texts that a pass goes on with
};

// What the generator's tasks take at once; 0: not said (`auto`). None of it changes a text.
struct PassLimits {
  std::uint64_t sequences = 0;  // that write or wait for their row
  std::uint64_t tokens = 0;     // of a forward pass
  // This, and what it does not say from the other.
  PassLimits or_else(const PassLimits& other) const;
};
// Of a GPU: 8,192 tokens are several times what hides the reading of the weights and the start of the kernels, and 256 texts read them
// once for all. A CPU computes as fast as it reads with a few rows, so it leaves both to the task.
inline constexpr PassLimits kGpuPassLimits{256, 8192};

// What `plan` prints of a task. Bytes are exact where they follow from the data, else an upper bound.
struct PlanReport {
  std::vector<DeviceRow> devices;
  int num_groups = 0;
  int tp_size = 0;  // the largest
  // Of a job whose groups have several sizes, largest first: what a device of each needs, and the units that they compute.
  struct OfSize {
    int size = 1, groups = 0;
    std::uint64_t units = 0;
    std::vector<std::pair<std::string, std::uint64_t>> device_parts;
  };
  std::vector<OfSize> sizes;
  std::string model;               // "llama, 134.5 M parameters, f32"
  std::uint64_t device_bytes = 0;  // memory a device: weights, activations, tiles; of several sizes the most
  std::vector<std::pair<std::string, std::uint64_t>> device_parts;  // the same by part, in bytes
  std::uint64_t num_samples = 0;
  std::uint64_t num_units = 0;
  std::uint64_t num_units_done = 0;  // committed by an earlier run
  std::uint64_t num_tokens = 0;
  std::uint64_t longest_sample = 0;  // tokens
  std::uint64_t results_bytes = 0;   // of the files when all is done
  std::uint64_t needed_bytes = 0;    // of the file system from now on: without what stands there already
  std::uint64_t free_bytes = 0;      // of the results' file system
  std::vector<std::pair<std::string, std::string>> notes;  // more lines, name and value
  std::string first_prompt;  // of the first record, line by line as `plan` prints it; empty: the task has no prompts
};

}  // namespace magister
