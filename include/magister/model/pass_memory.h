// Memory that a pass takes on a GPU in addition to weights and KV cache, itemised: plans and runs use the same
// estimate. PassMemory asks, before a pass begins, whether every shard of a group has memory for it. If one shard ran
// out of memory in the middle of a pass, the others would wait forever in a collective. So all shards ask at the same
// point, and all of them divide the pass or none does.
#pragma once

#include <cstdint>
#include <functional>

#include "magister/core/memory_parts.h"
#include "magister/model/transformer.h"

namespace magister {

struct GpuPassSize {
  std::int64_t tokens = 0;
  std::int64_t sequence_tokens = 0;  // tokens of the longest sequence with keys in a cache; 0: no cache
  std::int64_t tile_rows = 0;        // rows of this shard's logits that exist at a time
  std::int64_t sampled_rows = 0;     // rows of logits over the whole vocabulary, for sampling

  bool operator==(const GpuPassSize&) const = default;
  // True if a pass of size `other` needs no more of anything.
  bool holds(const GpuPassSize& other) const { return with(other) == *this; }
  // The larger value of each field.
  GpuPassSize with(const GpuPassSize& other) const;
};

// Bytes, itemised. codes: the model holds quantised codes that a pass widens, one product or a slice of experts at a
// time. factors: as for gpu_activation_bytes(); some experts of 8-bit floats are widened, too.
MemoryParts gpu_pass_parts(const ModelConfig& config, const Partition& partition, int tp_size, const GpuPassSize& size,
                           bool codes, at::ScalarType factors);

// Bytes of the buffers with which decoding for throughput multiplies codes, a product at a time: for pieces of sums,
// and for weights that must become bf16 before.
std::uint64_t decoding_code_bytes(const ModelConfig& config, const Partition& partition);

class PassMemory {
 public:
  using Size = GpuPassSize;

  // refuses: called on every shard once per pass; true makes this shard behave as if it had no memory (a fail point).
  // has_room: tells whether this shard's device can allocate this number of bytes; empty: the allocator is asked, and
  // on a CPU or a host queue the answer is yes. model is kept by reference.
  PassMemory(Transformer& model, std::function<bool()> refuses, std::function<bool(std::uint64_t bytes)> has_room = {})
      : model_(model), refuses_(std::move(refuses)), has_room_(std::move(has_room)) {}

  // Runs pass() if there is memory for it. Returns "" when it is done, else the reason why nothing of it was kept. With
  // several shards all of them are asked first; sizes up to one that fitted before are not asked about again, because
  // the question makes the host wait for the device. With one shard, pass() is simply tried, and running out of memory
  // is caught. Collective over the model's group.
  std::string run(const Size& size, const std::function<void()>& pass);

  // True if this shard's device has memory for such a pass, as has_room or the allocator says. Local.
  bool fits_here(const Size& size) const;

  // Sequences grow by one token per decoding pass, so their group asks for this many tokens more at a time.
  static constexpr std::int64_t kTokensAhead = 512;

 private:
  bool fits_everywhere(const Size& size);

  Transformer& model_;
  std::function<bool()> refuses_;
  std::function<bool(std::uint64_t)> has_room_;
  Size known_;  // the largest size that had memory on all shards
};

}  // namespace magister
