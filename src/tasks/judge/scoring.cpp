// Sums are in double over ids in ascending order, so every shard and machine gets the same bits from the same logits.
#include "magister/tasks/judge/scoring.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "magister/core/error.h"
#include "magister/core/log_sum_exp.h"
#include "magister/text/whole_word.h"
#include "tasks/judge/verdict_tokens.h"

namespace magister {
namespace {

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

std::int32_t single_largest(std::span<const double> numbers) {
  constexpr double kEqual = 1e-9;
  const auto best = std::max_element(numbers.begin(), numbers.end());
  const auto is_equal = [&](double number) { return number >= *best - kEqual; };
  return std::count_if(numbers.begin(), numbers.end(), is_equal) == 1
             ? static_cast<std::int32_t>(best - numbers.begin())
             : -1;
}

Verdict verdict_from(const std::vector<double>& logprobs, double low_mass) {
  const double together = log_sum_exp<double>(logprobs);
  Verdict result;
  const auto best = static_cast<std::size_t>(std::max_element(logprobs.begin(), logprobs.end()) - logprobs.begin());
  result.verdict = single_largest(logprobs);
  std::vector<double> others(logprobs.begin() + 1, logprobs.end());
  double second = -std::numeric_limits<double>::infinity(), expected = 0;
  for (std::size_t c = 0; c < logprobs.size(); ++c) {
    if (c != best) second = std::max(second, logprobs[c]);
    expected += static_cast<double>(c + 1) * std::exp(logprobs[c] - together);
    result.class_logprobs.push_back(static_cast<float>(logprobs[c]));
  }
  result.probability = static_cast<float>(std::exp(logprobs[best] - together));
  result.log_odds = static_cast<float>(logprobs[0] - log_sum_exp<double>(others));
  result.margin = static_cast<float>(logprobs[best] - second);
  result.mass = static_cast<float>(std::exp(together));
  result.expected = static_cast<float>(expected);
  result.parse = std::exp(together) < low_mass ? ParseClass::kLowMass
                 : result.verdict < 0          ? ParseClass::kTie
                                               : ParseClass::kOk;
  return result;
}

Verdict verdict_from_text(std::int32_t verdict, std::size_t num_classes) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  return {.verdict = verdict,
          .probability = kNone,
          .log_odds = kNone,
          .margin = kNone,
          .mass = kNone,
          .expected = kNone,
          .parse = verdict < 0 ? ParseClass::kUnparsed : ParseClass::kOk,
          .class_logprobs = std::vector<float>(num_classes, kNone)};
}

std::int32_t first_word(const std::string& text, const std::vector<VerdictClass>& classes) {
  std::int32_t best = -1;
  std::size_t best_at = std::string::npos, best_size = 0;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (const std::string& word : classes[c].words) {
      for (const std::string& spelling : verdict_spellings(word)) {
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
