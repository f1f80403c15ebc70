// Scheduler: which tokens of which sequences the next pass computes, and in which pages of the cache. Decode rows first, then prompts in
// pieces, then new sequences, as far as the token budget and the pages go. It sees no model: only lengths, pages and equal beginnings.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/sequence.h"
#include "magister/engine/generator.h"
#include "magister/engine/page_pool.h"

namespace magister {

class Scheduler {
 public:
  // separates_prefill: rows of prompts and rows of texts go through different kernels, so none is computed the other's way.
  Scheduler(const GeneratorLimits& limits, bool separates_prefill);

  // count texts of one prompt: samples request.sample and so on. Throws Error(kData) naming the record when prompt and text would not
  // fit into the cache.
  void add(GenerationRequest request, std::uint64_t count);
  // A text that waits or runs, with its pages given back; null: there is none. The texts of the same prompt go on.
  std::unique_ptr<Sequence> take_out(std::uint64_t record, std::uint64_t sample);
  bool idle() const { return waiting_.empty() && running_.empty(); }

  struct Pass {
    std::vector<Sequence*> computed;               // `scheduled` tokens of each, from `computed` on
    std::vector<Sequence*> begun;                  // on a shared prompt: their first token needs no pass
    std::vector<std::int64_t> copy_from, copy_to;  // pages, before the pass
  };
  // The next one. Not empty unless idle().
  Pass schedule();
  // The texts that go on by a token behind one that is drawn and not yet known, in order, with pages for it; `drawing` is all that the scheduler
  // has at work. Left out are those that end by their length with the drawn token. Empty where the next pass is to be scheduled otherwise: a text is at
  // its prompt, a page is missing, or texts that wait have a place and takes_in. A text that turns out to have ended has computed a row for nothing.
  std::vector<Sequence*> schedule_ahead(const std::vector<Sequence*>& drawing, bool takes_in);
  // As advance(), of what schedule_ahead() gave; a null has ended meanwhile.
  static void advance_ahead(const std::vector<Sequence*>& sequences);
  // The pass is computed: returns the sequences whose last token is now, in order.
  static std::vector<Sequence*> advance(const Pass& pass);

  // A sequence that leads was computed to its prompt's end: pages and last row stay for the texts that have not begun.
  void keep_prompt(Sequence& sequence, const at::Tensor& logits_1V);
  // The last row of the prompt that the sequence begins on; the last of these texts frees it.
  at::Tensor take_prompt_row(Sequence& sequence);
  // Gives the pages back; a sequence without pages is gone with the next remove_finished().
  void release(Sequence& sequence);
  void remove_finished();

  std::uint64_t num_cached_tokens() const { return cached_tokens_; }
  std::uint64_t num_preemptions() const { return preemptions_; }

 private:
  using SequencePtr = std::unique_ptr<Sequence>;
  void find_shared_pages(Sequence& sequence);
  bool begin_on(SharedPrompt& prompt, Sequence& sequence);
  void drop(SharedPrompt& prompt);
  bool drop_prompts();
  bool admit(Sequence& sequence, std::int64_t& budget);
  bool take_pages(Sequence& sequence, std::int64_t& budget);
  void preempt_last();
  void schedule_running(std::int64_t& budget);

  GeneratorLimits limits_;
  bool separates_prefill_;
  PagePool pool_;
  std::deque<SequencePtr> waiting_;
  std::vector<SequencePtr> running_;                    // in the order of admission
  std::vector<std::shared_ptr<SharedPrompt>> prompts_;  // that hold pages
  Pass pass_;                                           // that is being put together
  std::uint64_t cached_tokens_ = 0, preemptions_ = 0;
};

}  // namespace magister
