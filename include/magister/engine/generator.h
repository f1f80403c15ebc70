// Generator: continuous batching of sequences over one model. A pass computes one token of every sequence that is
// writing, and fills its budget with pieces of waiting prompts. Pages with equal beginnings are computed once, and so
// is a prompt of several texts, whatever its length. The result of a sequence does not depend on its neighbours, bit
// for bit, so neither the order of requests nor preemption nor the number of groups changes a text.
// Legend: S running sequences, T tokens of a pass, V vocabulary, v this shard's part.
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
  std::uint64_t record = 0;  // with `sample` and the seed the key of the draws
  std::uint64_t sample = 0;
  std::vector<TokenId> prompt;             // at least one token
  std::int64_t max_new_tokens = 0;         // 0: only the prompt's last row is returned
  const Constraint* constraint = nullptr;  // the text matches it and ends with it; kept by reference
  bool greedy = false;  // the first text of the request takes the most probable tokens, whatever the temperature
  bool guided = true;   // uses the generator's guide, if it has one
  // For a request for a row, as the only text of its prompt: the tokens whose logits are returned, instead of the whole
  // row. Kept by reference.
  std::span<const TokenId> wanted{};
  // Number of the prompt's last tokens that already belong to the text: the model's rules (model_rules.h) count from
  // the beginning of the text.
  std::uint64_t begun = 0;
  std::shared_ptr<const Decoding> decoding{};  // null: the generator's usual one
};

enum class FinishReason : std::uint8_t { kStop = 0, kLength = 1 };

struct Generation {
  std::uint64_t record = 0, sample = 0;
  std::vector<TokenId> tokens;      // the written tokens, including the token that stopped
  std::vector<float> logprobs;      // of each token, nats, by the model's own distribution
  std::vector<TokenId> top_ids;     // [tokens, top_logprobs]: the most probable tokens of every step, best first
  std::vector<float> top_logprobs;  // their log-probabilities, by the model's own distribution
  std::vector<float> guide_kl;      // of each token: KL(guided || reference), nats; empty without a guide
  FinishReason finish_reason = FinishReason::kLength;
  std::vector<float> last_logits_V;  // the prompt's last row, if max_new_tokens is 0 and `wanted` is empty
  std::vector<float> wanted_logits;  // from that row, for the wanted tokens in their order
  double logsumexp = 0;              // of that whole row, nats; set if tokens are wanted
  std::int64_t cached_tokens = 0;    // tokens of the prompt that were not computed again
};

// Sizes of the shards' parts of the vocabulary. Local.
std::vector<std::int64_t> logit_widths(const ModelConfig& config, int tp_size);
// [R, v] of each shard -> [R, V]: joins the shards' parts in one exchange, without waiting on the host. Collective over
// the group.
at::Tensor gather_logits(const at::Tensor& part_Rv, const std::vector<std::int64_t>& widths, ProcessGroup& group);

struct GeneratorLimits {
  std::int64_t max_sequences = 32;  // that write at the same time
  std::int64_t token_budget = 512;  // per pass; max_sequences is used instead if it is larger
  std::int64_t num_pages = 0;       // of the cache; one sequence must fit
  bool share_prefixes = true;
  bool schedules_ahead = true;    // on a GPU: queues the next pass of texts before the host knows this pass's tokens
  std::int64_t top_logprobs = 0;  // number kept for every written token; at most the vocabulary
};

struct Sequence;   // src/engine/sequence.h
struct WantedRow;  // src/engine/wanted_rows.h

class Generator {
 public:
  using Stop = Decoding::Stop;

  // usual: the decoding of requests that bring none. model is kept by reference. Throws Error(kConfig) for fewer than
  // two pages, for no sequence or token per pass, and for a bias or top_logprobs outside the vocabulary.
  Generator(Transformer& model, const GeneratorLimits& limits, std::shared_ptr<const Decoding> usual);
  Generator(Transformer& model, const GeneratorLimits& limits, const SamplingParams& sampling, std::uint64_t seed,
            Stop stop);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // Lets a value model guide every text from now on. Call it before the first request. A multiplier of 0 changes
  // nothing. Throws Error(kConfig) if setup does not fit the models: head, vocabularies, candidates, multiplier. Local.
  void guide(const GuideSetup& setup);
  // Adds `count` texts of one prompt, with the samples request.sample and following. The first text computes the
  // prompt; the others begin with its last row and a copy of its last page. Throws Error(kData) naming the record if
  // prompt and text would not fit into the cache. Local.
  void add(GenerationRequest request, std::uint64_t count = 1);
  // Ends a text that waits or is being written, without a Generation. The other texts of its prompt go on. Call it
  // between steps, on every shard alike. Returns false if there is no such text. Local.
  bool cancel(std::uint64_t record, std::uint64_t sample);
  bool idle() const;
  // Called at a row of logits that is not finite, on every shard; it may be collective and must throw. tokens: those of
  // the sequence; the row is that of the last one. Without this function the generator throws its own error with record
  // and text.
  using NotFinite = std::function<void(std::uint64_t record, std::uint64_t sample, const std::vector<TokenId>& tokens)>;
  void on_not_finite(NotFinite refuse) { not_finite_ = std::move(refuse); }

  // Computes one pass of the model. Every shard must have the same requests in the same order. Collective over the
  // model's group.
  void step();
  // The texts that have finished since the last call, in the order of finishing.
  std::vector<Generation> take_finished();

  struct Counts {
    std::uint64_t passes = 0, computed_tokens = 0, cached_tokens = 0, written_tokens = 0, preemptions = 0;
    std::uint64_t ahead_passes = 0;  // passes that were queued before the previous tokens were known
    std::uint64_t guide_tokens = 0;  // tokens that the value model computed
    double guide_seconds = 0;        // time of its passes, within step(); on a GPU until they are queued
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
