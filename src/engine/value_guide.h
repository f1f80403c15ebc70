// ValueGuide: what a value model says of the candidates of many texts, in one ragged pass. It has a cache of its own: a text's keys and values
// stay there from token to token, each candidate writes into a private copy of the last page, and the chosen one's page is kept.
// Pages of equal beginnings stand once. A number never depends on the neighbours, the pages or the cuts, to the bit.
// On a GPU all its rows go through the kernels of prompts: a candidate that was kept has the keys that the text has when it is computed again.
// Legend: C candidates, L numbers of the head.
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
  // setup as Generator::guide() takes it, whose checks it makes against the reference's config; token_budget: of a pass. Local.
  ValueGuide(const GuideSetup& setup, const ModelConfig& reference, std::int64_t token_budget);

  const GuideParams& params() const { return params_; }
  // Throws Error(kData) naming the record when a text of `length` tokens would not fit into the cache with its candidates.
  void check_fits(std::uint64_t record, std::int64_t length) const;

  // A sequence whose next token is asked for: ids in, offsets out.
  struct Asked {
    Sequence* sequence = nullptr;
    std::vector<GuidedToken> tokens;  // at most C
  };
  // Fills the offsets of the first ones, as many as a pass and the pages hold, at least one, and returns their number. Of each of these
  // keep() or release() must be called before the next call. Throws Error(kData) for a number that is not finite. Collective over the group.
  std::size_t rescore(std::span<Asked> asked);
  // The sequence's newest token is the one that was drawn: its keys and values stay. It must be one of those rescored.
  void keep(const Asked& asked);
  // The text has ended.
  void release(const Sequence& sequence);

  std::uint64_t num_computed_tokens() const { return computed_tokens_; }
  double pass_seconds() const { return pass_seconds_; }

 private:
  // The pages of one text. Keyed by record and sample, so that every shard gives up the same ones.
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  struct Held {
    std::vector<std::int32_t> pages, candidates;
    std::int64_t computed = 0;  // tokens that stand in `pages`
    PagePool::PrefixId prefix = 0;
    std::int64_t prefix_pages = 0;  // full pages that can be found under their tokens
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
  // What a pass computes of one text: tokens behind `past` others.
  struct Input {
    std::vector<TokenId> tokens;
    std::int64_t past = 0;
    BlockTable slots;
  };
  // -> hidden states, on the model's device. In halves where a GPU has no memory for all at once.
  at::Tensor pass(const std::vector<Input>& inputs);
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
