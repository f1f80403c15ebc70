// A model's files, opened and described, and the dtype of its products, which is the same on every rank of a mixed
// cluster.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/device/launch.h"
#include "magister/experiment/config.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/io/results/results_file.h"
#include "magister/model/cpu/quantize.h"
#include "magister/model/model_config.h"
#include "magister/model/weight_store.h"
#include "magister/model/weights.h"
#include "magister/parallel/communicator.h"
#include "magister/runtime/checkpoint.h"
#include "magister/runtime/memory_plan.h"
#include "magister/runtime/pass_shape.h"

namespace magister {

class ProcessGroup;
class ThreadPool;
class Transformer;

// Weights that the ranks of a host have in one copy, or in one for each of its NUMA nodes.
struct SharedWeights {
  std::uint64_t bytes = 0;     // of one copy; 0: these weights cannot be shared
  int shards = 1, copies = 1;  // on the host with the most of each

  // True if the host has fewer copies than shards.
  bool on() const { return bytes > 0 && copies < shards; }
  // A shard's part of the copies, rounded up.
  std::uint64_t part() const;
};

struct OpenModel {
  const TensorFile* file = nullptr;  // owned by the checkpoint, which outlives this
  ModelDescription description;
  at::ScalarType dtype = at::kFloat;
  at::ScalarType plain_dtype = at::kFloat;  // the dtype without quantisation
  QuantScheme quantization;
  QuantizedProducts products;        // only with quantisation
  int shards_on_host = 1;            // shards that share a host's memory, including this one
  SharedWeights shared{};            // see expect_sharing()
  std::uint64_t reserved_bytes = 0;  // on a GPU: bytes for other models, which the cache must leave free
  bool is_second = false;            // another model of its group counts the memory that both share
  KeptWeights kept;                  // weights kept for load(); without a name it keeps none
  bool cudnn_attention = false;      // see Transformer::use_cudnn_attention
  bool throughput_decoding = false;  // see Transformer::use_throughput_decoding
  bool fp8_cache = false;            // see Transformer::use_fp8_cache
  std::optional<gpu::Queue> gpu;     // device of this rank's first shard; no value: the CPU
  std::vector<int> gpus;             // of all its shards; empty if the host computes
  bool planned_gpu = false;          // gpu belongs to a cluster that is only planned (parallel/gpu_cards.h)

  // "cpu" or "gpu": results of the two agree within rounding, not to the bit, so a run cannot continue on the other
  // kind.
  std::string device_kind() const { return gpu ? "gpu" : "cpu"; }
  // The pass sizes that suit the device. GPU code on the host has those of a CPU.
  PassLimits pass_limits() const { return gpu && (planned_gpu || !gpu->on_host()) ? kGpuPassLimits : PassLimits{}; }
  // How this CPU multiplies bf16 weights: "amx", "avx512bf16", or "f32" if they are widened. The order of sums differs,
  // so a run cannot continue with another way. Empty on GPUs and for other types.
  std::string bf16_products() const;
  // Loads this shard's model, or the same without quantisation and 8-bit pages. hook: see WeightSource. Local.
  Transformer load(ProcessGroup& group, ThreadPool& pool, const LoadHook& hook = {}) const;
  Transformer load_unquantized(ProcessGroup& group, ThreadPool& pool, const LoadHook& hook = {}) const;

  // "layers int4: 118 products with the file's own codes, 2 made in groups of 32"; empty without quantisation.
  std::string layers() const;
  // Bytes of a shard's weights; the function keeps a reference to this.
  std::function<std::uint64_t(int tp_rank)> shard_bytes(int tp_size) const;
  // Memory of each device of a group, by part. Of weights that ranks share it has a shard's part.
  MemoryParts device_memory(int tp_size, const PassShape& pass, std::uint64_t cache_pages) const;
  // Bytes of a page of keys and values on a shard, and the limit of the whole cache: an eighth of the host's memory,
  // divided by the shards on it, or on a GPU the memory that weights and passes leave free.
  std::uint64_t page_bytes(int tp_size) const;
  std::uint64_t cache_budget_bytes(int tp_size, const PassShape& pass) const;
  // From now on load() looks for its weights in the store and leaves them there, under the name that this returns.
  // identity: that of the task, with the model's hash as `prefix`model_sha256.
  const std::string& keep_weights(WeightStore& store, const Attributes& identity, const std::string& prefix);
  // Sets `shared` to what share_weights() will reach, as far as a small piece of shared memory shows. shards: on the
  // host that has the most of them. is_planned: they are of other ranks than those of world; a host then has a copy for
  // each of its NUMA nodes, if ranks here can share memory. Collective over world.
  void expect_sharing(const Communicator& world, int tp_size, int shards, bool is_planned);
  // From now on load() fills one copy of the weights together with the ranks of the host that are at the same NUMA
  // node, if all ranks load this model in whole shards without codes on CPUs and can share memory; else every rank
  // fills a copy. `shared` then has the copies that there really are. After keep_weights(). Collective over world.
  void share_weights(const Communicator& world, int tp_size);
  // Fields of the event "start": device, dtype, quantization, cpu_kernels of rank 0, products_kept, products_made.
  nlohmann::ordered_json log_fields() const;
};

// gpu, gpus: see queue_of and gpus_of (device_group.h). Keeps a reference to the checkpoint. Collective over world.
OpenModel open_model(const Communicator& world, const Checkpoint& checkpoint, const std::optional<gpu::Queue>& gpu,
                     const std::vector<int>& gpus);

// The scheme of model.quantization and model.quantization_group; sizing and loading both use it, so that they agree.
QuantScheme quant_scheme_of(const ModelSection& section);

std::string dtype_name(at::ScalarType dtype);

}  // namespace magister
