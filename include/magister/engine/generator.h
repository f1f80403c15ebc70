// Generator: continuous batching of sequences over one model. A pass takes one token of every sequence that is writing and
// fills its budget with pieces of waiting prompts; pages of equal beginnings are computed once, and so is the prompt of several texts,
// whatever its length. What is computed for a
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
  std::vector<TokenId> prompt;             // at least one token
  std::int64_t max_new_tokens = 0;         // 0: only the prompt's last row is asked for
  const Constraint* constraint = nullptr;  // the text keeps to it and ends with it; kept by reference
};

enum class FinishReason : std::uint8_t { kStop = 0, kLength = 1 };

struct Generation {
  std::uint64_t record = 0, sample = 0;
  std::vector<TokenId> tokens;      // what was written, the stopping token included
  std::vector<float> logprobs;      // of each, nats, under the model's own distribution
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
  std::int64_t top_logprobs = 0;  // kept of every written token's row; at most the vocabulary
};

class Generator {
 public:
  // stop(tokens written): true ends the sequence with kStop; asked after every token, on every shard alike.
  using Stop = std::function<bool(std::uint64_t record, std::uint64_t sample, const std::vector<TokenId>& tokens)>;

  // model is kept by reference. Throws Error(kConfig) when num_pages cannot hold a page for each of two sequences.
  Generator(Transformer& model, const GeneratorLimits& limits, const SamplingParams& sampling, std::uint64_t seed,
            Stop stop);

  // count texts of one prompt: samples request.sample and so on. The first of them computes the prompt, the others begin with its last
  // row and a copy of its last page. Throws Error(kData) naming the record when prompt and text would not fit into the cache. Local.
  void add(GenerationRequest request, std::uint64_t count = 1);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  // Ends the work at a row of logits that is not finite: called on every shard, may be collective, must throw. tokens: of the sequence, the
  // row is that of the last. Without one the generator's own error names record and text.
  using NotFinite = std::function<void(std::uint64_t record, std::uint64_t sample, const std::vector<TokenId>& tokens)>;
  void on_not_finite(NotFinite refuse) { not_finite_ = std::move(refuse); }

  // One pass over the model. Every shard has got the same requests in the same order. Collective over the model's group.
  void step();
  // What has finished since the last call, in the order of finishing.
  std::vector<Generation> take_finished();

  struct Counts {
    std::uint64_t passes = 0, computed_tokens = 0, cached_tokens = 0, written_tokens = 0, preemptions = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  // The prompt of several texts. From its computing until the last of them has begun, its pages have an owner more than the sequences
  // that write on; the pages behind it are copied, for the first text goes on in it.
  struct SharedPrompt {
    enum class State { kNone, kUnderWay, kComputed } state = State::kNone;
    std::uint64_t waiting = 0;  // texts that have not begun
    std::vector<std::int32_t> pages;
    PagePool::PrefixId prefix = 0;
    std::int64_t prefix_pages = 0;
    at::Tensor logits_1V;  // of the last row, where the model has them
  };

  struct Sequence {
    GenerationRequest request;
    std::shared_ptr<SharedPrompt> prompt;  // with others, until this one has begun
    bool leads = false;                    // computes it
    std::vector<TokenId> tokens;           // prompt and text
    std::vector<float> logprobs;
    std::vector<TokenId> top_ids;
    std::vector<float> top_logprobs;
    std::optional<ConstraintState> constraint;  // stands after the last token, also while its pages are gone
    std::vector<std::int32_t> pages;
    std::int64_t computed = 0;   // tokens whose keys and values stand in the pages
    std::int64_t scheduled = 0;  // of them, with this pass
    std::int64_t cached = 0;
    PagePool::PrefixId prefix = 0;
    std::int64_t prefix_pages = 0;  // full pages that are remembered
  };
  using SequencePtr = std::unique_ptr<Sequence>;

  void find_shared_pages(Sequence& sequence);
  bool begin_on(SharedPrompt& prompt, Sequence& sequence);
  void keep_prompt(Sequence& sequence, const at::Tensor& logits_1V);
  void drop(SharedPrompt& prompt);
  bool drop_prompts();
  bool admit(Sequence& sequence, std::int64_t& budget, std::vector<Sequence*>& pass);
  void copy_last_pages();
  bool schedule(Sequence& sequence, std::int64_t& budget);
  void preempt_last();
  std::vector<Sequence*> schedule_pass();
  // Rows of prompts and of texts go through different kernels on a GPU.
  bool separates_prefill() const { return model_.lm_head().gpu.has_value(); }
  at::Tensor forward(const std::vector<Sequence*>& pass);
  // What is known of a sequence's row after a pass: its logits on the host, or the token that the device drew from them.
  struct Row {
    std::span<float> logits_V;
    std::optional<SampledToken> drawn;
  };
  bool draws_on_device(const Sequence& sequence) const;
  std::vector<Row> rows_of(const std::vector<Sequence*>& sequences, const at::Tensor& logits_RV,
                           at::Tensor& on_host) const;
  DrawKey key_of(const Sequence& sequence) const;
  void sample(Sequence& sequence, const Row& row);
  void accept(Sequence& sequence, const Row& row);
  void check_finite(const Sequence& sequence, const Row& row) const;
  void release(Sequence& sequence);

  Transformer& model_;
  GeneratorLimits limits_;
  SamplingParams sampling_;
  std::uint64_t seed_;
  Stop stop_;
  NotFinite not_finite_;
  KvCache cache_;
  PagePool pool_;
  std::deque<SequencePtr> waiting_;
  std::vector<SequencePtr> running_;  // in the order of admission
  std::vector<Generation> finished_;
  std::vector<std::shared_ptr<SharedPrompt>> prompts_;  // that hold pages
  std::vector<Sequence*> begun_;  // sequences that began on a shared prompt: their first token needs no pass
  std::vector<std::int64_t> copy_from_, copy_to_;  // pages, before the next pass
  Counts counts_;
};

}  // namespace magister
