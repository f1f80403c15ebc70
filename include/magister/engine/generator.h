// Generator: continuous batching of sequences over one model. A pass takes one token of every sequence that is writing and
// fills its budget with pieces of waiting prompts; pages of equal beginnings are computed once, and so is the prompt of several texts,
// whatever its length. What is computed for a
// sequence does not depend on its neighbours, to the bit, so neither the order of requests nor preemption nor the number
// of groups changes a text. Legend: S running sequences, T tokens of a pass, V vocabulary, v this shard's part.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "magister/core/types.h"
#include "magister/engine/constraint.h"
#include "magister/engine/decoding.h"
#include "magister/engine/guide.h"
#include "magister/engine/sampler.h"
#include "magister/model/transformer.h"

namespace magister {

struct GenerationRequest {
  std::uint64_t record = 0;  // with sample and the seed the key of the draws
  std::uint64_t sample = 0;
  std::vector<TokenId> prompt;             // at least one token
  std::int64_t max_new_tokens = 0;         // 0: only the prompt's last row is asked for
  const Constraint* constraint = nullptr;  // the text keeps to it and ends with it; kept by reference
  bool greedy = false;  // the first of the request's texts takes the likeliest tokens, whatever the temperature
  bool guided = true;   // by the generator's guide, where it has one
  // Of a request for a row, alone of its prompt: what is read of it, instead of the whole row. Kept by reference.
  std::span<const TokenId> wanted{};
  // So many of the prompt's last tokens belong to the text already: the model's rules (model_rules.h) count from where it begins.
  std::uint64_t begun = 0;
  std::shared_ptr<const Decoding> decoding{};  // null: the generator's usual one
};

enum class FinishReason : std::uint8_t { kStop = 0, kLength = 1 };

struct Generation {
  std::uint64_t record = 0, sample = 0;
  std::vector<TokenId> tokens;      // what was written, the stopping token included
  std::vector<float> logprobs;      // of each, nats, under the model's own distribution
  std::vector<TokenId> top_ids;     // [tokens, top_logprobs]: the most probable ones of every step, best first
  std::vector<float> top_logprobs;  // likewise, under the model's own distribution
  std::vector<float> guide_kl;      // of each token: KL(guided || reference), nats; empty without a guide
  FinishReason finish_reason = FinishReason::kLength;
  std::vector<float> last_logits_V;  // of the prompt's last row, where max_new_tokens is 0 and no token is wanted
  std::vector<float> wanted_logits;  // of that row, of the wanted tokens in their order
  double logsumexp = 0;              // of that whole row, nats, where tokens are wanted
  std::int64_t cached_tokens = 0;    // of the prompt, that were not computed again
};

// Each shard's part of the vocabulary. Local.
std::vector<std::int64_t> logit_widths(const ModelConfig& config, int tp_size);
// [R, v] of each shard -> [R, V]: the shards' parts side by side, in one exchange that nobody waits for on the host. Collective over the
// group.
at::Tensor gather_logits(const at::Tensor& part_Rv, const std::vector<std::int64_t>& widths, ProcessGroup& group);

struct GeneratorLimits {
  std::int64_t max_sequences = 32;  // that write at the same time
  std::int64_t token_budget = 512;  // of a pass
  std::int64_t num_pages = 0;       // of the cache; one sequence must fit
  bool share_prefixes = true;
  bool schedules_ahead =
      true;  // on a GPU: the next pass of texts is queued before the host knows what this one has drawn
  std::int64_t top_logprobs = 0;  // kept of every written token's row; at most the vocabulary
};

struct Sequence;   // src/engine/sequence.h
struct WantedRow;  // src/engine/wanted_rows.h

class Generator {
 public:
  using Stop = Decoding::Stop;

  // usual: the decoding of requests that bring none. model is kept by reference. Throws Error(kConfig) when num_pages cannot hold a page for
  // each of two sequences, and for what the vocabulary does not have.
  Generator(Transformer& model, const GeneratorLimits& limits, std::shared_ptr<const Decoding> usual);
  Generator(Transformer& model, const GeneratorLimits& limits, const SamplingParams& sampling, std::uint64_t seed,
            Stop stop);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // From now on a value model guides every text. Before the first request. A multiplier of 0 changes nothing. Throws Error(kConfig) where
  // setup does not fit the models: heads, vocabularies, candidates, pages; CPU models only. Local.
  void guide(const GuideSetup& setup);
  // count texts of one prompt: samples request.sample and so on. The first of them computes the prompt, the others begin with its last
  // row and a copy of its last page. Throws Error(kData) naming the record when prompt and text would not fit into the cache. Local.
  void add(GenerationRequest request, std::uint64_t count = 1);
  // Ends a text that waits or is being written, without a Generation; the texts of the same prompt go on. Between steps, on every shard
  // alike. False: no such text is left. Local.
  bool cancel(std::uint64_t record, std::uint64_t sample);
  bool idle() const;
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
    std::uint64_t ahead_passes = 0;  // of them, that were queued before the tokens before them were known
    std::uint64_t guide_tokens = 0;  // that the value model computed
    double guide_seconds = 0;        // of its passes, within step(); on a GPU until they are queued
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Parts;
  struct Rows;
  struct InFlight;
  std::optional<InFlight> begin();
  std::optional<InFlight> begin_ahead(const InFlight& now);
  void finish(const InFlight& now);
  void refuse_not_finite(const Sequence& sequence) const;
  void write(const std::vector<Sequence*>& asked, const Rows& rows);
  void write_guided(const std::vector<Sequence*>& asked, const Rows& rows, const std::vector<std::size_t>& which);
  void extend(Sequence& sequence, const SampledToken& token);
  void answer_wanted(std::vector<Sequence*>& asked, std::vector<WantedRow> rows);
  Generation row_of(const Sequence& sequence) const;
  void answer(Sequence& sequence, Generation row);

  std::unique_ptr<Parts> parts_;  // scheduler, model runner, row sampler
  NotFinite not_finite_;
  std::vector<Generation> finished_;
  Counts counts_;
};

}  // namespace magister
