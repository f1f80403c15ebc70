// Scheduler: chooses the tokens of each sequence that the next pass computes, and their pages in the cache. Decode rows
// come first, then pieces of prompts, then new sequences, as far as the token budget and the pages allow. It knows no
// model, only lengths, pages and equal beginnings.
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
  // separates_prefill: rows of prompts and rows of texts use different kernels, so no row may be computed by the other
  // kind.
  Scheduler(const GeneratorLimits& limits, bool separates_prefill);

  // Adds `count` texts of one prompt, with the samples request.sample and following. Throws Error(kData) naming the
  // record if prompt and text would not fit into the cache.
  void add(GenerationRequest request, std::uint64_t count);
  // A text that waits or runs, with its pages given back; null: there is none. The texts of the same prompt go on.
  std::unique_ptr<Sequence> take_out(std::uint64_t record, std::uint64_t sample);
  bool idle() const { return waiting_.empty() && running_.empty(); }

  struct Pass {
    std::vector<Sequence*> computed;               // `scheduled` tokens of each, from `computed` on
    std::vector<Sequence*> begun;                  // texts on a shared prompt: their first token needs no pass
    std::vector<std::int64_t> copy_from, copy_to;  // pages, copied before the pass
  };
  // The next pass. Not empty unless idle().
  Pass schedule();
  // The texts that continue with one more token after a token that is drawn but not known yet, in order, with pages for
  // it. `drawing`: all running texts. Texts that end by their length with the drawn token are left out. Empty if the
  // next pass must be scheduled in the normal way: a text is in its prompt, a page is missing, or (with takes_in)
  // waiting texts can be admitted. For a text that turns out to have ended, one row is computed in vain.
  std::vector<Sequence*> schedule_ahead(const std::vector<Sequence*>& drawing, bool takes_in);
  // Like advance(), for the result of schedule_ahead(); a null is a text that has ended meanwhile.
  static void advance_ahead(const std::vector<Sequence*>& sequences);
  // Called when the pass is computed: returns the sequences whose last token is now computed, in order.
  static std::vector<Sequence*> advance(const Pass& pass);

  // The sequence has computed a shared prompt to its end: pages and last row are kept for the texts that have not
  // begun.
  void keep_prompt(Sequence& sequence, const at::Tensor& logits_1V);
  // The last row of the shared prompt on which the sequence begins; the last of its texts frees it.
  at::Tensor take_prompt_row(Sequence& sequence);
  // Frees the pages; remove_finished() deletes sequences without pages.
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
  std::vector<std::int64_t> places_;  // those that no text has, see Sequence::place
  std::deque<SequencePtr> waiting_;
  std::vector<SequencePtr> running_;                    // in the order of admission
  std::vector<std::shared_ptr<SharedPrompt>> prompts_;  // prompts that hold pages
  Pass pass_;                                           // the pass that is being built
  std::uint64_t cached_tokens_ = 0, preemptions_ = 0;
};

}  // namespace magister
