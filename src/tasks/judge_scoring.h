// A judge's verdict from one row of logits: the log-probabilities of the sets of tokens with which each verdict may begin.
// Source: the weighted evaluators of AlpacaEval and G-Eval's expected score; here every verdict word has all its spellings,
// and what the sets hold together (`mass`) tells whether the model wanted to give a verdict at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/text/tokenizer.h"

namespace magister {

// The verdicts that a mode knows, in the order of their numbers: {"yes", "no"}, {"A", "B", "C"}, {"1", ..., "5"}.
struct VerdictClass {
  std::string name;                 // stored in the summary: "correct"
  std::vector<std::string> words;   // what the model would write, each in several spellings
};

// First tokens by class. Throws Error(kConfig) when two classes share one (this tokenizer cannot tell them apart).
std::vector<std::vector<TokenId>> first_tokens(const Tokenizer& tokenizer, const std::vector<VerdictClass>& classes);

enum class ParseClass : std::uint8_t { kOk = 0, kLowMass = 1 };

struct Verdict {
  std::int32_t verdict = -1;             // the most probable class, of equal ones the first
  float probability = 0;                 // of it among the classes
  float log_odds = 0;                    // nats: the first class against all others together
  float margin = 0;                      // nats: the best class over the second
  float mass = 0;                        // probability of all classes together, of the whole distribution
  float expected = 0;                    // sum of class number * its probability among the classes
  ParseClass parse = ParseClass::kOk;
  std::vector<float> class_logprobs;     // of each class, of the whole distribution, nats
};

Verdict score_verdict(std::span<const float> logits_V, const std::vector<std::vector<TokenId>>& classes, double low_mass);

}  // namespace magister
