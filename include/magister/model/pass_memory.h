// What a pass takes on a GPU beside weights and cache, by part: one estimate for plans and for runs. And PassMemory: whether every shard of a group
// has memory for a pass, asked before any of them begins it. A shard that runs out in the middle would leave the others waiting in a sum; here
// all stand at one place, and all divide the pass or none does.
#pragma once

#include <cstdint>
#include <functional>

#include "magister/core/memory_parts.h"
#include "magister/model/transformer.h"

namespace magister {

struct GpuPassSize {
  std::int64_t tokens = 0;
  std::int64_t sequence_tokens = 0;  // of the longest sequence with its keys in a cache; 0 without one
  std::int64_t tile_rows = 0;        // of this shard's part of the logits that stand at a time
  std::int64_t sampled_rows = 0;     // of logits of the whole vocabulary, which tokens are drawn from

  bool operator==(const GpuPassSize&) const = default;
  bool holds(const GpuPassSize& other) const { return with(other) == *this; }
  // The larger of each number.
  GpuPassSize with(const GpuPassSize& other) const;
};

// Bytes by part. codes: of a model whose codes are made plain, a product at a time; dtype: of the activations.
MemoryParts gpu_pass_parts(const ModelConfig& config, const Partition& partition, int tp_size, const GpuPassSize& size,
                           bool codes, at::ScalarType dtype);

class PassMemory {
 public:
  using Size = GpuPassSize;

  // refuses: asked on every shard once a pass, before its own memory is; true as if it had none (a fail point). has_room: whether this
  // shard's device has a place of so many bytes; empty: by its allocator, and on a host queue always. model is kept by reference.
  PassMemory(Transformer& model, std::function<bool()> refuses, std::function<bool(std::uint64_t bytes)> has_room = {})
      : model_(model), refuses_(std::move(refuses)), has_room_(std::move(has_room)) {}

  // pass() where there is memory for it, at once or, with one shard, as far as it turns out. "": it is done; else why not, and nothing of it was kept.
  // Sizes up to one that all shards had memory for are not asked about again: a question makes the host wait for the device. Collective over the
  // model's group.
  std::string run(const Size& size, const std::function<void()>& pass);

  // Whether this shard's device has memory for such a pass; on the host always. Local.
  bool fits_here(const Size& size) const;

  // Sequences that are written grow by a token a pass: their group is asked about so many more at a time.
  static constexpr std::int64_t kTokensAhead = 512;

 private:
  bool fits_everywhere(const Size& size);

  Transformer& model_;
  std::function<bool()> refuses_;
  std::function<bool(std::uint64_t)> has_room_;
  Size known_;  // for which there was memory
};

}  // namespace magister
