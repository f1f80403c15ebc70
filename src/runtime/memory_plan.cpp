// Computes the memory of devices from the config's shapes, before there are any devices; see memory_plan.h.
#include "magister/runtime/memory_plan.h"

#include <algorithm>

#include "magister/core/error.h"
#include "magister/core/units_of_measure.h"
#include "magister/engine/logit_reducer.h"
#include "magister/model/kv_codes.h"
#include "magister/model/kv_pages.h"
#include "magister/model/partition.h"
#include "magister/model/pass_memory.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "magister/parallel/peer_sums.h"
#include "magister/runtime/open_model.h"

namespace magister {
namespace {

std::string describe_quantization(const QuantScheme& scheme) {
  if (!scheme.on()) return "";
  const char* type = scheme.type == QuantType::kInt8 ? "int8" : "int4";
  return scheme.group == 0 ? fmt::format("{}, one scale an output", type)
                           : fmt::format("{} in groups of {}", type, scheme.group);
}

}  // namespace

std::string describe_planned_model(const PlannedModel& model) {
  if (model.config.family.empty()) return "none";
  const auto parameters = static_cast<double>(model.config.num_parameters());
  const std::string size =
      parameters < 1e9 ? fmt::format("{:.1f} M", parameters * 1e-6) : fmt::format("{:.2f} B", parameters * 1e-9);
  std::string words = fmt::format("{}, {} parameters, {}", model.config.family, size, dtype_name(model.dtype));
  if (!model.quantization.on()) return words;
  return words + ", " + (model.layers.empty() ? "layers " + describe_quantization(model.quantization) : model.layers);
}

std::uint64_t pages_of_one_text(const PassShape& pass) {
  return pass.sequence_tokens == 0 ? 0 : (pass.sequence_tokens + KvPages::kSlots - 1) / KvPages::kSlots + 2;
}

namespace {

MemoryParts cpu_parts(const ModelConfig& config, const Partition& part, std::uint64_t weights, const PassShape& pass,
                      std::uint64_t cache_pages) {
  MemoryParts parts = {{"weights", weights},
                       {"activations", activation_bytes(config, part, static_cast<std::int64_t>(pass.tokens), 1)}};
  if (cache_pages > 0) parts.emplace_back("keys and values", cache_pages * kv_page_bytes(config, part));
  if (const std::uint64_t a_text = delta_state_bytes(config, part); cache_pages > 0 && a_text > 0)
    parts.emplace_back("states of texts", std::max<std::uint64_t>(pass.sampled_rows, 1) * a_text);
  return parts;
}

// 8 channels with buffers of 4 MB, 5 MB and 0.5 MB (one for each of NCCL's protocols) to two neighbours, plus the
// library's own memory.
constexpr std::uint64_t kNcclBytes = std::uint64_t{256} << 20;
// The parts that the models of a group share.
constexpr const char *kNccl = "NCCL", *kPeerSums = "sums in kernels";

MemoryParts gpu_parts(const ModelConfig& config, const Partition& part, std::uint64_t weights, const PassShape& pass,
                      std::uint64_t cache_pages, int tp_size, const GpuDemand& gpu) {
  const auto longest = static_cast<std::int64_t>(pass.sequence_tokens);
  const GpuPassSize size{static_cast<std::int64_t>(pass.tokens), longest, kLogitRows,
                         static_cast<std::int64_t>(pass.sampled_rows)};
  MemoryParts parts = {{"weights", weights}};
  for (auto& one : gpu_pass_parts(config, part, tp_size, size, gpu.quantized, gpu.dtype))
    parts.push_back(std::move(one));
  // Without a cache one sequence may have all tokens of a pass.
  if (const std::uint64_t tables = gpu_rotary_bytes(config, size.tokens, longest > 0 ? longest : size.tokens);
      tables > 0)
    parts.emplace_back("rotary tables", tables);
  if (cache_pages > 0) {
    // One page more, to which idle rows write.
    parts.emplace_back("keys and values", (cache_pages + 1) * gpu_page_bytes(config, part, gpu.dtype, gpu.fp8_cache));
    if (const std::uint64_t decoding = gpu_decoding_bytes(config, part, tp_size, longest, gpu.dtype); decoding > 0)
      parts.emplace_back("decoding", decoding);
    if (gpu.throughput && gpu.quantized)
      parts.emplace_back("products of codes in decoding", decoding_code_bytes(config, part));
  }
  if (tp_size > 1) parts.emplace_back(kNccl, kNcclBytes);
  // A model with our own decoding kernels allocates these buffers in its self-test, whatever the task.
  const bool has_kernels = gpu_decoding_bytes(config, part, tp_size, 1, gpu.dtype) > 0;
  if (const std::uint64_t sums = PeerSums::memory_bytes(tp_size); has_kernels && sums > 0)
    parts.emplace_back(kPeerSums, sums);
  return parts;
}

}  // namespace

MemoryParts device_memory(const ModelConfig& config, const ShardBytes& shard_bytes, int tp_size, const PassShape& pass,
                          std::uint64_t cache_pages, const std::optional<GpuDemand>& gpu) {
  MemoryParts largest;
  for (int shard = 0; shard < tp_size; ++shard) {
    const Partition part = partition_for(config, shard, tp_size);
    MemoryParts parts = gpu ? gpu_parts(config, part, shard_bytes(shard), pass, cache_pages, tp_size, *gpu)
                            : cpu_parts(config, part, shard_bytes(shard), pass, cache_pages);
    if (pass.row_bytes > 0) parts.emplace_back("rows of a unit", pass.row_bytes);
    if (sum_of(parts) > sum_of(largest)) largest = std::move(parts);
  }
  return largest;
}

MemoryParts without_shared(MemoryParts parts) {
  std::erase_if(parts, [](const auto& part) { return part.first == kNccl || part.first == kPeerSums; });
  return parts;
}

MemoryParts group_memory(const std::vector<GroupModel>& models, int tp_size) {
  MemoryParts parts;
  for (const GroupModel& model : models) {
    const auto weights = [&](int shard) { return model.weight_bytes(shard, model.shards_of(tp_size)); };
    MemoryParts own =
        device_memory(model.config, weights, model.shards_of(tp_size), model.pass, model.pages, model.gpu);
    if (&model != &models.front()) own = without_shared(std::move(own));
    for (auto& [name, bytes] : own)
      parts.emplace_back(model.name.empty() ? name : fmt::format("{}: {}", model.name, name), bytes);
  }
  return parts;
}

std::vector<int> group_sizes(const std::vector<GroupModel>& models, int most) {
  std::vector<int> sizes;
  for (int size = 1; size <= most; ++size) sizes.push_back(size);
  for (const GroupModel& model : models) {
    const std::vector<int> working = working_tp_sizes(model.config, most);
    std::erase_if(sizes, [&](int size) {
      return std::find(working.begin(), working.end(), model.shards_of(size)) == working.end();
    });
  }
  return sizes;
}

}  // namespace magister
