// PassMemory: whether every shard of a group has memory for a pass, asked before any of them begins it. A shard that runs out in the middle
// would leave the others waiting in a sum; here all stand at one place, and all divide the pass or none does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "magister/model/transformer.h"

namespace magister {

class PassMemory {
 public:
  // refuses: asked on every shard before its own memory is; true as if it had none (a fail point). model is kept by reference.
  PassMemory(Transformer& model, std::function<bool()> refuses) : model_(model), refuses_(std::move(refuses)) {}

  struct Size {
    std::int64_t tokens = 0;
    std::int64_t sequence_tokens = 0;  // of the longest sequence with its keys in a cache; 0 without one
    std::int64_t logit_rows = 0;       // of this shard's part of the vocabulary that stand at a time
  };

  // pass() where there is memory for it, at once or, with one shard, as far as it turns out. "": it is done; else why not, and nothing of it was kept.
  // Sizes up to those that all shards had memory for are not asked about again. Collective over the model's group.
  std::string run(const Size& size, const std::function<void()>& pass);

 private:
  bool fits_here(const Size& size) const;
  bool fits_everywhere(const Size& size);

  Transformer& model_;
  std::function<bool()> refuses_;
  Size known_;  // for which there was memory
};

}  // namespace magister
