// Generator: continuous batching of sequences over one model. A pass takes one token of every sequence that is writing and
// fills its budget with pieces of waiting prompts; pages of equal beginnings are computed once. What is computed for a
// sequence does not depend on its neighbours, to the bit, so neither the order of requests nor preemption nor the number
// of groups changes a text. Legend: S running sequences, T tokens of a pass, V vocabulary, v this shard's part.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "magister/core/types.h"
#include "magister/engine/constraint.h"
#include "magister/engine/page_pool.h"
#include "magister/engine/sampler.h"
#include "magister/model/transformer.h"

namespace magister {

struct GenerationRequest {
  std::uint64_t record = 0;  // with sample and the seed the key of the draws
  std::uint64_t sample = 0;
  std::vector<TokenId> prompt;  // at least one token
  std::int64_t max_new_tokens = 0;  // 0: only the prompt's last row is asked for
  const Constraint* constraint = nullptr;  // the text keeps to it and ends with it; kept by reference
};

enum class FinishReason : std::uint8_t { kStop = 0, kLength = 1 };

struct Generation {
  std::uint64_t record = 0, sample = 0;
  std::vector<TokenId> tokens;   // what was written, the stopping token included
  std::vector<float> logprobs;   // of each, nats, under the model's own distribution
  std::vector<TokenId> top_ids;     // [tokens, top_logprobs]: the most probable ones of every step, best first
  std::vector<float> top_logprobs;  // likewise, under the model's own distribution
  FinishReason finish_reason = FinishReason::kLength;
  std::vector<float> last_logits_V;  // of the prompt's last row, where max_new_tokens is 0
  std::int64_t cached_tokens = 0;    // of the prompt, that were not computed again
};

// [R, v] of each shard -> [R, V]: the shards' parts side by side. Collective over the group.
at::Tensor gather_logits(const at::Tensor& part_Rv, ProcessGroup& group);

struct GeneratorLimits {
  std::int64_t max_sequences = 32;  // that write at the same time
  std::int64_t token_budget = 512;  // of a pass
  std::int64_t num_pages = 0;       // of the cache; one sequence must fit
  bool share_prefixes = true;
  std::int64_t top_logprobs = 0;    // kept of every written token's row; at most the vocabulary
};

class Generator {
 public:
  // stop(tokens written): true ends the sequence with kStop; asked after every token, on every shard alike.
  using Stop = std::function<bool(std::uint64_t record, std::uint64_t sample, const std::vector<TokenId>& tokens)>;

  // model is kept by reference. Throws Error(kConfig) when num_pages cannot hold a page for each of two sequences.
  Generator(Transformer& model, const GeneratorLimits& limits, const SamplingParams& sampling, std::uint64_t seed, Stop stop);

  // Throws Error(kData) naming the record when prompt and text would not fit into the cache. Local.
  void add(GenerationRequest request);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  // One pass over the model. Every shard has got the same requests in the same order. Collective over the model's group.
  void step();
  // What has finished since the last call, in the order of finishing.
  std::vector<Generation> take_finished();

  struct Counts {
    std::uint64_t passes = 0, computed_tokens = 0, cached_tokens = 0, written_tokens = 0, preemptions = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Sequence {
    GenerationRequest request;
    std::vector<TokenId> tokens;  // prompt and text
    std::vector<float> logprobs;
    std::vector<TokenId> top_ids;
    std::vector<float> top_logprobs;
    std::optional<ConstraintState> constraint;  // stands after the last token, also while its pages are gone
    std::vector<std::int32_t> pages;
    std::int64_t computed = 0;    // tokens whose keys and values stand in the pages
    std::int64_t scheduled = 0;   // of them, with this pass
    std::int64_t cached = 0;
    PagePool::PrefixId prefix = 0;
    std::int64_t prefix_pages = 0;  // full pages that are remembered
  };
  using SequencePtr = std::unique_ptr<Sequence>;

  void find_shared_pages(Sequence& sequence);
  bool schedule(Sequence& sequence, std::int64_t& budget);
  void preempt_last();
  std::vector<Sequence*> schedule_pass();
  // Rows of prompts and of texts go through different kernels on a GPU.
  bool keeps_apart() const { return model_.lm_head().gpu.has_value(); }
  at::Tensor forward(const std::vector<Sequence*>& pass);
  // What is known of a sequence's row after a pass: its logits on the host, or the token that the device drew from them.
  struct Row {
    std::span<float> logits_V;
    std::optional<SampledToken> drawn;
  };
  bool draws_on_device(const Sequence& sequence) const;
  std::vector<Row> rows_of(const std::vector<Sequence*>& sequences, const at::Tensor& logits_RV, at::Tensor& on_host) const;
  DrawKey key_of(const Sequence& sequence) const;
  void sample(Sequence& sequence, const Row& row);
  void accept(Sequence& sequence, const Row& row);
  void release(Sequence& sequence);

  Transformer& model_;
  GeneratorLimits limits_;
  SamplingParams sampling_;
  std::uint64_t seed_;
  Stop stop_;
  KvCache cache_;
  PagePool pool_;
  std::deque<SequencePtr> waiting_;
  std::vector<SequencePtr> running_;  // in the order of admission
  std::vector<Generation> finished_;
  Counts counts_;
};

}  // namespace magister
