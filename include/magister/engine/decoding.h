// Decoding: how the texts of a request are drawn, where they end, and a callback for their tokens. Requests share it if
// they have all of this in common.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "magister/core/types.h"
#include "magister/engine/logits_processor.h"
#include "magister/engine/sampler.h"

namespace magister {

class Decoding {
 public:
  // stop(record, sample, written tokens): true ends the text with kStop. Asked after every token, on every shard alike.
  using Stop = std::function<bool(std::uint64_t record, std::uint64_t sample, const std::vector<TokenId>& tokens)>;
  // Called after every token, before stop, on every shard alike. It must not call the generator.
  using OnToken = std::function<void(std::uint64_t record, std::uint64_t sample, const SampledToken& token)>;

  // one_record: draws are keyed as if every request were this record; nullopt: by the request's own.
  Decoding(SamplingParams sampling, std::uint64_t seed, Stop stop = {}, OnToken on_token = {},
           std::optional<std::uint64_t> one_record = {});
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

  // greedy: of a text that takes the likeliest tokens, whatever the temperature.
  const SamplingParams& sampling(bool greedy = false) const { return greedy ? greedy_ : sampling_; }
  const LogitsChain& chain() const { return chain_; }
  std::uint64_t seed() const { return seed_; }
  // The record in the keys of a request's draws.
  std::uint64_t record_of_draws(std::uint64_t record) const { return one_record_.value_or(record); }
  bool stops(std::uint64_t record, std::uint64_t sample, const std::vector<TokenId>& tokens) const {
    return stop_ && stop_(record, sample, tokens);
  }
  void report_token(std::uint64_t record, std::uint64_t sample, const SampledToken& token) const {
    if (on_token_) on_token_(record, sample, token);
  }

  // Throws Error(kConfig) for a bias on a token that the vocabulary does not have. Local.
  void check_vocabulary(std::int64_t vocab_size) const;

 private:
  SamplingParams sampling_, greedy_;
  LogitsChain chain_;
  std::uint64_t seed_;
  Stop stop_;
  OnToken on_token_;
  std::optional<std::uint64_t> one_record_;
};

}  // namespace magister
