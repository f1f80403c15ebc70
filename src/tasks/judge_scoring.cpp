// Sums in double over ids in ascending order, so that every shard and machine gives the same bits from the same logits.
#include "tasks/judge_scoring.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "magister/core/error.h"

namespace magister {
namespace {

// As written, capitalised, in capitals and small, each with and without the space before it.
std::set<std::string> spellings(const std::string& word) {
  std::string small = word, capital = word;
  std::transform(small.begin(), small.end(), small.begin(), [](unsigned char c) { return std::tolower(c); });
  std::transform(capital.begin(), capital.end(), capital.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string first = small;
  first[0] = capital[0];
  std::set<std::string> words;
  // One letter is a name ("A"), its small form another word ("a").
  if (word.size() == 1) {
    words = {word};
  } else {
    words = {word, small, capital, first};
  }
  std::set<std::string> all = words;
  for (const std::string& spelling : words) all.insert(" " + spelling);
  return all;
}

double log_sum_exp(std::span<const double> values) {
  const double top = *std::max_element(values.begin(), values.end());
  if (std::isinf(top)) return top;
  double sum = 0;
  for (const double value : values) sum += std::exp(value - top);
  return top + std::log(sum);
}

}  // namespace

std::vector<std::vector<TokenId>> first_tokens(const Tokenizer& tokenizer, const std::vector<VerdictClass>& classes) {
  std::vector<std::set<TokenId>> sets(classes.size());
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (const std::string& word : classes[c].words) {
      for (const std::string& spelling : spellings(word)) {
        const std::vector<TokenId> ids = tokenizer.encode(spelling, {.add_special_tokens = false, .special_tokens_in_text = false});
        // A space that is a token of its own says nothing about the word behind it.
        if (!ids.empty() && tokenizer.decode(std::span(ids).first(1)) != " ") sets[c].insert(ids.front());
      }
    }
  }
  std::vector<std::vector<TokenId>> tokens;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (std::size_t other = 0; other < c; ++other) {
      std::vector<TokenId> shared;
      std::set_intersection(sets[c].begin(), sets[c].end(), sets[other].begin(), sets[other].end(), std::back_inserter(shared));
      MAGISTER_CHECK(shared.empty(), ExitCode::kConfig, "the verdicts \"{}\" and \"{}\" begin with the same token \"{}\" of this "
                     "tokenizer (one row of logits cannot tell them apart); choose fewer classes or other words",
                     classes[other].name, classes[c].name, shared.empty() ? "" : printable(tokenizer.decode(std::span(shared).first(1))));
    }
    MAGISTER_CHECK(!sets[c].empty(), ExitCode::kConfig, "the verdict \"{}\" has no token of its own in this tokenizer (it could "
                   "never be given); choose other words", classes[c].name);
    tokens.emplace_back(sets[c].begin(), sets[c].end());
  }
  return tokens;
}

Verdict score_verdict(std::span<const float> logits_V, const std::vector<std::vector<TokenId>>& classes, double low_mass) {
  const double top = *std::max_element(logits_V.begin(), logits_V.end());
  double sum = 0;
  for (const float logit : logits_V) sum += std::exp(static_cast<double>(logit) - top);
  const double normaliser = top + std::log(sum);
  MAGISTER_CHECK(std::isfinite(normaliser), ExitCode::kData, "the judge's logits are not finite (a verdict from them would mean "
                 "nothing); check the weights and the dtype");
  std::vector<double> logprobs;
  for (const std::vector<TokenId>& tokens : classes) {
    std::vector<double> values;
    for (const TokenId id : tokens) values.push_back(static_cast<double>(logits_V[static_cast<std::size_t>(id)]) - normaliser);
    logprobs.push_back(log_sum_exp(values));
  }
  const double together = log_sum_exp(logprobs);
  Verdict result;
  result.verdict = static_cast<std::int32_t>(std::max_element(logprobs.begin(), logprobs.end()) - logprobs.begin());
  std::vector<double> others(logprobs.begin() + 1, logprobs.end());
  double second = -std::numeric_limits<double>::infinity(), expected = 0;
  for (std::size_t c = 0; c < logprobs.size(); ++c) {
    if (static_cast<std::int32_t>(c) != result.verdict) second = std::max(second, logprobs[c]);
    expected += static_cast<double>(c + 1) * std::exp(logprobs[c] - together);
    result.class_logprobs.push_back(static_cast<float>(logprobs[c]));
  }
  result.probability = static_cast<float>(std::exp(logprobs[static_cast<std::size_t>(result.verdict)] - together));
  result.log_odds = static_cast<float>(logprobs[0] - log_sum_exp(others));
  result.margin = static_cast<float>(logprobs[static_cast<std::size_t>(result.verdict)] - second);
  result.mass = static_cast<float>(std::exp(together));
  result.expected = static_cast<float>(expected);
  result.parse = std::exp(together) < low_mass ? ParseClass::kLowMass : ParseClass::kOk;
  return result;
}

}  // namespace magister
