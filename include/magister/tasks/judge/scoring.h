// A judge's verdict from one row of logits: the log-probabilities of the sets of tokens with which each verdict may begin.
// Source: the weighted evaluators of AlpacaEval and G-Eval's expected score; here every verdict word has all its spellings,
// and what the sets hold together (`mass`) tells whether the model wanted to give a verdict at all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/text/tokenizer.h"

namespace magister {

// The verdicts that a mode knows, in the order of their numbers: {"yes", "no"}, {"A", "B", "C"}, {"1", ..., "5"}.
struct VerdictClass {
  std::string name;                // stored in the summary: "correct"
  std::vector<std::string> words;  // what the model would write, each in several spellings
};

// The tokens with which each verdict may begin behind a prompt, with a blank before it and without. Where digits are tokens of their own "10"
// begins as "1" does: its list is empty then, and `zero` is the token that makes a 10 of a 1.
struct VerdictTokens {
  std::vector<std::vector<TokenId>> first;  // by class, ids ascending
  std::optional<TokenId> zero;              // of the last class
  // SentencePiece vocabularies: a blank that is a token of its own, where a verdict has no token that begins with one ("_", "1").
  std::optional<TokenId> blank;
  bool behind_text = false;  // some are others than those of the words alone

  // For the identity of results: what was taken behind text; empty where the words alone say it.
  std::string identity() const;
  // Class by class.
  std::vector<TokenId> all() const;
};

// Of `text` as it goes on behind another one, without special tokens. A vocabulary that puts a blank before every text (SentencePiece's) has other
// tokens for it there than alone: how it goes on behind each end that prompts have (a line end, a colon, brackets), without those that grow
// together with that end, for a prompt's own tokens stay. Each way once; of other vocabularies the one of the text alone.
std::vector<std::vector<TokenId>> ids_behind(const Tokenizer& tokenizer, const std::string& text);

// Throws Error(kConfig) when two classes share a token (this tokenizer cannot tell them apart), other than 1 and 10.
VerdictTokens verdict_tokens(const Tokenizer& tokenizer, const std::vector<VerdictClass>& classes);

// low_mass: the model wanted to write something else; unparsed: its reply holds no verdict; truncated: the reply was cut off; tie: several
// classes are the most probable ones, and none is the verdict.
enum class ParseClass : std::uint8_t { kOk = 0, kLowMass = 1, kUnparsed = 2, kTruncated = 3, kTie = 4 };

// The place of the largest number; -1 where another one is as large. Numbers that differ by no more than the order of a sum can make of equal
// ones (1e-9) are equal.
std::int32_t single_largest(std::span<const double> numbers);

struct Verdict {
  std::int32_t verdict = -1;  // the most probable class; -1: unparsed, or several are
  float probability = 0;      // of it among the classes
  float log_odds = 0;         // nats: the first class against all others together
  float margin = 0;           // nats: the best class over the second
  float mass = 0;             // probability of all classes together, of the whole distribution
  float expected = 0;         // sum of class number * its probability among the classes
  ParseClass parse = ParseClass::kOk;
  std::vector<float> class_logprobs;  // of each class, of the whole distribution, nats
};

// Log-probability of each class from the row after which the verdict comes, nats; -inf where its list is empty. logits: of all classes' tokens,
// in the order of VerdictTokens::all(); logsumexp: of the whole row.
std::vector<double> class_logprobs(std::span<const float> logits, double logsumexp, const VerdictTokens& tokens);
// The same of the row itself. Throws Error(kData) when it is not finite.
std::vector<double> class_logprobs_of_row(std::span<const float> logits_V, const VerdictTokens& tokens);
// The class that was "1" becomes 1 and 10; zero_logprob: of `zero`, which goes on to 10, in the row after the digit.
void split_ten(std::vector<double>& logprobs, double zero_logprob);
Verdict verdict_from(const std::vector<double>& class_logprobs, double low_mass);

// A verdict that was read from a written reply: no probabilities (NaN), verdict -1 and kUnparsed where there is none.
Verdict verdict_from_text(std::int32_t verdict, std::size_t num_classes);
// The class whose word comes first in `text` as a word of its own, spelled as it is, small, capitalised or in capitals
// (single letters and numbers exactly); of several at one place the longest. -1: none.
std::int32_t first_word(const std::string& text, const std::vector<VerdictClass>& classes);
// The first class in the list whose word occurs anywhere in `text`, letters' case ignored; -1: none. So "not sure" holds "no".
// Source: the rule of semantic-uncertainty style scripts, kept so that earlier figures can be compared.
std::int32_t any_substring(const std::string& text, const std::vector<VerdictClass>& classes);

}  // namespace magister
