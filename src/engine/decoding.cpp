// See decoding.h.
#include "magister/engine/decoding.h"

#include <utility>

#include "magister/core/error.h"

namespace magister {

Decoding::Decoding(SamplingParams sampling, std::uint64_t seed, Stop stop, OnToken on_token,
                   std::optional<std::uint64_t> one_record)
    : sampling_(std::move(sampling)),
      greedy_(sampling_),
      chain_(sampling_),
      seed_(seed),
      stop_(std::move(stop)),
      on_token_(std::move(on_token)),
      one_record_(one_record) {
  greedy_.temperature = 0;
}

void Decoding::check_vocabulary(std::int64_t vocab_size) const {
  for (const auto& [id, bias] : sampling_.logit_bias) {
    MAGISTER_CHECK(id >= 0 && id < vocab_size, ExitCode::kConfig,
                   "logit_bias names token {} (the vocabulary has {} entries); name one of them", id, vocab_size);
  }
}

}  // namespace magister
