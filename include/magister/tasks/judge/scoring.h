// A judge's verdict from one row of logits: the log-probabilities of the sets of tokens with which each verdict may
// begin. Sources: the weighted evaluators of AlpacaEval and G-Eval's expected score. Here every verdict word has all
// its spellings, and the total probability of the sets (`mass`) shows if the model was about to give a verdict at all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/text/tokenizer.h"

namespace magister {

// A verdict of a mode; their order gives the numbers: {"yes", "no"}, {"A", "B", "C"}, {"1", ..., "5"}.
struct VerdictClass {
  std::string name;                // stored in the summary: "correct"
  std::vector<std::string> words;  // words that the model would write, each in several spellings
};

// The tokens with which each verdict may begin after a prompt, with and without a blank before it. If digits are
// separate tokens, "10" begins like "1": its list is then empty, and `zero` is the token that turns a 1 into a 10.
struct VerdictTokens {
  std::vector<std::vector<TokenId>> first;  // by class, ids ascending
  std::optional<TokenId> zero;              // of the last class
  // SentencePiece vocabularies: a blank that is a token of its own, if the tokens of some verdict after a blank begin
  // with it ("_", "1").
  std::optional<TokenId> blank;
  bool follows_text = false;  // the tokens depend on the text before them

  // For the identity of results: the tokens if they depend on the text before them, otherwise empty.
  std::string identity() const;
  // All tokens, class by class.
  std::vector<TokenId> all() const;
};

// The tokens of `text` when it continues another text, without special tokens. A vocabulary that puts a blank before
// every text (SentencePiece's) gives other tokens there than for the text alone. For such a vocabulary these are the
// different continuations of the ends that prompts have (a line end, a colon, brackets), without those that merge with
// the end, because a prompt's own tokens do not change. For other vocabularies it is the text alone.
std::vector<std::vector<TokenId>> continuation_ids(const Tokenizer& tokenizer, const std::string& text);

// Throws Error(kConfig) if two classes share a token (this tokenizer cannot distinguish them), except 1 and 10.
VerdictTokens verdict_tokens(const Tokenizer& tokenizer, const std::vector<VerdictClass>& classes);

// low_mass: the model was about to write something else; unparsed: its reply has no verdict; truncated: the reply was
// cut off; tie: several classes are equally the most probable, and none is the verdict.
enum class ParseClass : std::uint8_t { kOk = 0, kLowMass = 1, kUnparsed = 2, kTruncated = 3, kTie = 4 };

// Index of the largest number; -1 if another number is equally large. Numbers that differ by at most 1e-9 are equal,
// because the order of a sum can change equal numbers by that much.
std::int32_t single_largest(std::span<const double> numbers);

struct Verdict {
  std::int32_t verdict = -1;  // the most probable class; -1: unparsed or a tie
  float probability = 0;      // of the verdict among the classes
  float log_odds = 0;         // nats: the first class against all others together
  float margin = 0;           // nats: the best class over the second
  float mass = 0;             // total probability of all classes in the whole distribution
  float expected = 0;         // sum of class number * its probability among the classes
  ParseClass parse = ParseClass::kOk;
  std::vector<float> class_logprobs;  // of each class in the whole distribution, nats
};

// Log-probability of each class from the row before the verdict, nats; -inf for an empty list. logits: those of all
// classes' tokens in the order of VerdictTokens::all(); logsumexp: of the whole row.
std::vector<double> class_logprobs(std::span<const float> logits, double logsumexp, const VerdictTokens& tokens);
// The same from the whole row. Throws Error(kData) if it is not finite.
std::vector<double> class_logprobs_of_row(std::span<const float> logits_V, const VerdictTokens& tokens);
// Splits the class of "1" into 1 and 10. zero_logprob: log-probability of `zero` in the row after the digit.
void split_ten(std::vector<double>& logprobs, double zero_logprob);
Verdict verdict_from(const std::vector<double>& class_logprobs, double low_mass);

// A verdict that was read from a written reply: its probabilities are NaN. Verdict -1 gives kUnparsed.
Verdict verdict_from_text(std::int32_t verdict, std::size_t num_classes);
// The class whose word comes first in `text` as a whole word, spelled as given, in small letters, capitalised or in
// capitals (single letters and numbers exactly). Of several at one position the longest counts. -1: none.
std::int32_t first_word(const std::string& text, const std::vector<VerdictClass>& classes);
// The first class in the list whose word occurs anywhere in `text`, ignoring case; -1: none. So "not sure" contains
// "no". Source: the rule of semantic-uncertainty style scripts, kept for comparison with earlier results.
std::int32_t any_substring(const std::string& text, const std::vector<VerdictClass>& classes);

}  // namespace magister
