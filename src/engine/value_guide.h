// ValueGuide: the value model's numbers for the candidates of many texts, in one ragged pass. It has its own cache: a
// text's keys and values stay there from token to token, each candidate writes into a private copy of the last page,
// and the page of the chosen one is kept. Pages of equal beginnings are stored once. A number does not depend on
// neighbours, pages or the division into passes, bit for bit. On a GPU all its rows use the kernels of prompts, so a
// kept candidate has the same keys as after a recomputation of the text.
// Legend: C candidates, L outputs of the head.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/sequence.h"
#include "magister/engine/guide.h"
#include "magister/engine/page_pool.h"
#include "magister/model/pass_memory.h"
#include "magister/model/transformer.h"

namespace magister {

class ValueGuide {
 public:
  // setup: as for Generator::guide(), whose checks are made here against the reference's config. token_budget: per
  // pass. Local.
  ValueGuide(const GuideSetup& setup, const ModelConfig& reference, std::int64_t token_budget);

  const GuideParams& params() const { return params_; }
  // Throws Error(kData) naming the record if a text of `length` tokens and its candidates would not fit into the cache.
  void check_fits(std::uint64_t record, std::int64_t length) const;

  // A sequence whose next token is drawn: ids in, offsets out.
  struct Asked {
    Sequence* sequence = nullptr;
    std::vector<GuidedToken> tokens;  // at most C
  };
  // Fills the offsets of the first sequences, as many as fit into a pass and the pages (at least one), and returns
  // their number. For each of these, keep() or release() must be called before the next call. Throws Error(kData) for a
  // number that is not finite. Collective over the group.
  std::size_t rescore(std::span<Asked> asked);
  // The sequence's last token was drawn from the rescored candidates: its keys and values are kept.
  void keep(const Asked& asked);
  // Called when the text has ended.
  void release(const Sequence& sequence);

  std::uint64_t num_computed_tokens() const { return computed_tokens_; }
  double pass_seconds() const { return pass_seconds_; }

 private:
  // The pages of one text. The key is record and sample, so that every shard frees the same ones.
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  struct Held {
    std::vector<std::int32_t> pages, candidates;
    std::int64_t computed = 0;  // tokens in `pages`
    PagePool::PrefixId prefix = 0;
    std::int64_t prefix_pages = 0;  // full pages that can be found by their tokens
  };
  struct Piece {
    Held* held = nullptr;
    std::span<const TokenId> tokens;
  };
  static Key key_of(const Sequence& sequence) { return {sequence.request.record, sequence.request.sample}; }
  bool reserve(std::span<const Asked> asked, const Asked& next);
  bool give_up_another(std::span<const Asked> asked, const Asked& next);
  void find_shared_pages(Held& held, std::span<const TokenId> tokens);
  void share_full_pages(Held& held, std::span<const TokenId> tokens);
  void free_pages(Held& held);
  void compute_texts(std::span<const Asked> asked);
  void compute(const std::vector<Piece>& pieces);
  // The input of one text for a pass: `tokens` after `past` others.
  struct Input {
    std::vector<TokenId> tokens;
    std::int64_t past = 0;
    BlockTable slots;
  };
  // Returns the hidden states of all rows, on the model's device, or of none: of texts only keys and values are read.
  // Computes in halves if a GPU has not enough memory.
  enum class Read : std::uint8_t { kAll, kNone };
  at::Tensor pass(const std::vector<Input>& inputs, Read read);
  void copy_pages(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to);
  void compute_candidates(std::span<Asked> asked);

  Transformer& model_;
  GuideParams params_;
  std::int64_t token_budget_;
  PagePool pool_;
  PassMemory memory_;
  KvCache cache_;
  std::map<Key, Held> held_;
  std::uint64_t computed_tokens_ = 0;
  double pass_seconds_ = 0;
};

}  // namespace magister
