// Sums in double over ids in ascending order, so that every shard and machine gives the same bits from the same logits.
#include "magister/run/judge_scoring.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "magister/core/error.h"
#include "magister/core/log_sum_exp.h"
#include "magister/text/words.h"

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

std::set<TokenId> first_of(const Tokenizer& tokenizer, const VerdictClass& verdict) {
  std::set<TokenId> found;
  for (const std::string& word : verdict.words) {
    for (const std::string& spelling : spellings(word)) {
      const std::vector<TokenId> ids =
          tokenizer.encode(spelling, {.add_special_tokens = false, .special_tokens_in_text = false});
      // A space that is a token of its own says nothing about the word behind it.
      if (!ids.empty() && tokenizer.token_bytes(ids.front()) != " ") found.insert(ids.front());
    }
  }
  return found;
}

double log_normaliser(std::span<const float> logits_V) {
  const double top = *std::max_element(logits_V.begin(), logits_V.end());
  double sum = 0;
  for (const float logit : logits_V) sum += std::exp(static_cast<double>(logit) - top);
  const double normaliser = top + std::log(sum);
  MAGISTER_CHECK(std::isfinite(normaliser), ExitCode::kData,
                 "the judge's logits are not finite (a verdict from them would mean "
                 "nothing); check the weights and the dtype");
  return normaliser;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

VerdictTokens verdict_tokens(const Tokenizer& tokenizer, const std::vector<VerdictClass>& classes) {
  std::vector<std::set<TokenId>> sets;
  sets.reserve(classes.size());
  for (const VerdictClass& one : classes) sets.push_back(first_of(tokenizer, one));
  VerdictTokens tokens;
  const std::vector<TokenId> ten =
      tokenizer.encode("10", {.add_special_tokens = false, .special_tokens_in_text = false});
  if (classes.size() == 10 && classes.back().name == "10" && ten.size() == 2 && sets.front().contains(ten.front())) {
    tokens.zero = ten.back();
    sets.back().clear();
  }
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (std::size_t other = 0; other < c; ++other) {
      std::vector<TokenId> shared;
      std::set_intersection(sets[c].begin(), sets[c].end(), sets[other].begin(), sets[other].end(),
                            std::back_inserter(shared));
      MAGISTER_CHECK(shared.empty(), ExitCode::kConfig,
                     "the verdicts \"{}\" and \"{}\" begin with the same token \"{}\" of this "
                     "tokenizer (one row of logits cannot tell them apart); choose fewer classes or other words",
                     classes[other].name, classes[c].name,
                     shared.empty() ? "" : printable(tokenizer.decode(std::span(shared).first(1))));
    }
    MAGISTER_CHECK(
        !sets[c].empty() || (tokens.zero && c + 1 == classes.size()), ExitCode::kConfig,
        "the verdict \"{}\" has no token of its own in this tokenizer (it could never be given); choose other words",
        classes[c].name);
    tokens.first.emplace_back(sets[c].begin(), sets[c].end());
  }
  return tokens;
}

std::vector<TokenId> VerdictTokens::all() const {
  std::vector<TokenId> ids;
  for (const std::vector<TokenId>& of_class : first) ids.insert(ids.end(), of_class.begin(), of_class.end());
  return ids;
}

std::vector<double> class_logprobs(std::span<const float> logits, double logsumexp, const VerdictTokens& tokens) {
  std::vector<double> logprobs;
  for (const std::vector<TokenId>& ids : tokens.first) {
    std::vector<double> values;
    values.reserve(ids.size());
    for (const float logit : logits.first(ids.size())) values.push_back(static_cast<double>(logit) - logsumexp);
    logprobs.push_back(log_sum_exp<double>(values));
    logits = logits.subspan(ids.size());
  }
  return logprobs;
}

std::vector<double> class_logprobs_of_row(std::span<const float> logits_V, const VerdictTokens& tokens) {
  std::vector<float> logits;
  for (const TokenId id : tokens.all()) logits.push_back(logits_V[static_cast<std::size_t>(id)]);
  return class_logprobs(logits, log_normaliser(logits_V), tokens);
}

void split_ten(std::vector<double>& logprobs, double zero_logprob) {
  logprobs.back() = logprobs.front() + zero_logprob;
  logprobs.front() += std::log1p(-std::min(1.0, std::exp(zero_logprob)));
}

Verdict verdict_from(const std::vector<double>& logprobs, double low_mass) {
  const double together = log_sum_exp<double>(logprobs);
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
  result.log_odds = static_cast<float>(logprobs[0] - log_sum_exp<double>(others));
  result.margin = static_cast<float>(logprobs[static_cast<std::size_t>(result.verdict)] - second);
  result.mass = static_cast<float>(std::exp(together));
  result.expected = static_cast<float>(expected);
  result.parse = std::exp(together) < low_mass ? ParseClass::kLowMass : ParseClass::kOk;
  return result;
}

Verdict verdict_from_text(std::int32_t verdict, std::size_t num_classes) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  Verdict result{verdict, kNone, kNone, kNone, kNone, kNone, verdict < 0 ? ParseClass::kUnparsed : ParseClass::kOk, {}};
  result.class_logprobs.assign(num_classes, kNone);
  return result;
}

std::int32_t first_word(const std::string& text, const std::vector<VerdictClass>& classes) {
  std::int32_t best = -1;
  std::size_t best_at = std::string::npos, best_size = 0;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (const std::string& word : classes[c].words) {
      for (const std::string& spelling : spellings(word)) {
        if (spelling.front() == ' ') continue;
        for (std::size_t at = text.find(spelling); at != std::string::npos && at <= best_at;
             at = text.find(spelling, at + 1)) {
          if (!is_whole_word(text, at, spelling.size())) continue;
          if (at < best_at || spelling.size() > best_size) {
            best = static_cast<std::int32_t>(c);
            best_at = at;
            best_size = spelling.size();
          }
          break;
        }
      }
    }
  }
  return best;
}

std::int32_t any_substring(const std::string& text, const std::vector<VerdictClass>& classes) {
  const std::string small = lower(text);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (const std::string& word : classes[c].words) {
      if (small.find(lower(word)) != std::string::npos) return static_cast<std::int32_t>(c);
    }
  }
  return -1;
}

}  // namespace magister
