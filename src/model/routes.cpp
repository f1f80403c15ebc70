// See routes.h. Plain loops over a token's logits; they cost little compared with an expert's products.
#include "magister/model/routes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

namespace magister {

void choose_experts(const float* logits, std::int64_t num_experts, std::int64_t k, bool normed, std::int32_t* experts,
                    float* weights) {
  // NaN is compared as the smallest number, because it would otherwise be kept wherever it is met first.
  const auto comparable = [&](std::int64_t x) {
    return std::isnan(logits[x]) ? -std::numeric_limits<float>::infinity() : logits[x];
  };
  for (std::int64_t i = 0; i < k; ++i) {
    std::int32_t best = -1;
    for (std::int32_t x = 0; x < num_experts; ++x) {
      if (std::find(experts, experts + i, x) != experts + i) continue;
      if (best < 0 || comparable(x) > comparable(best)) best = x;
    }
    experts[i] = best;
  }
  std::sort(experts, experts + k);
  // In f64 and in a fixed order, so that the sum does not depend on a library's vector code.
  const double maximum = *std::max_element(logits, logits + num_experts);
  const auto weight = [&](std::int64_t x) { return std::exp(static_cast<double>(logits[x]) - maximum); };
  double sum = 0;
  for (std::int64_t x = 0; x < num_experts; ++x) {
    if (!normed || std::binary_search(experts, experts + k, static_cast<std::int32_t>(x)) || std::isnan(logits[x]))
      sum += weight(x);
  }
  for (std::int64_t i = 0; i < k; ++i) weights[i] = static_cast<float>(weight(experts[i]) / sum);
}

namespace {

std::vector<double> scores_of(const RouterRule& rule, const float* logits) {
  std::vector<double> scores(logits, logits + rule.experts);
  if (rule.config.scores == RouterConfig::Scores::kSigmoid) {
    for (double& score : scores) score = 1.0 / (1.0 + std::exp(-score));
    return scores;
  }
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - maximum);
  for (double& score : scores) score /= sum;
  return scores;
}

// The position of the largest number; of equal ones, the first. taken: positions that do not count.
std::int64_t best_of(const std::vector<double>& numbers, const std::vector<bool>& taken) {
  std::int64_t best = -1;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!taken[i] && (best < 0 || numbers[i] > numbers[static_cast<std::size_t>(best)]))
      best = static_cast<std::int64_t>(i);
  }
  return best;
}

// Experts outside the best groups: they cannot be chosen.
std::vector<bool> outside_of_groups(const RouterConfig& config, const std::vector<double>& choice) {
  std::vector<bool> outside(choice.size(), config.groups > 1);
  if (config.groups == 1) return outside;
  const std::size_t size = choice.size() / static_cast<std::size_t>(config.groups);
  std::vector<double> sums;
  for (std::size_t begin = 0; begin < choice.size(); begin += size) {
    std::vector<double> group(choice.begin() + static_cast<std::ptrdiff_t>(begin),
                              choice.begin() + static_cast<std::ptrdiff_t>(begin + size));
    std::partial_sort(group.begin(), group.begin() + 2, group.end(), std::greater<>());
    sums.push_back(config.groups_by_best ? group[0] : group[0] + group[1]);
  }
  std::vector<bool> taken(sums.size());
  for (std::int64_t i = 0; i < config.chosen_groups; ++i) {
    const auto group = static_cast<std::size_t>(best_of(sums, taken));
    taken[group] = true;
    std::fill_n(outside.begin() + static_cast<std::ptrdiff_t>(group * size), size, false);
  }
  return outside;
}

}  // namespace

namespace {

// Logits that are far from the best of the experts that are left have no share of its softmax.
bool is_far(double logit, double best, double margin) {
  return (best - logit) / std::max(std::abs(logit), best) > 2 * margin;
}

// One expert after another: the best of those left, and its share of the softmax over those near it.
void mix_sparsely(const RouterRule& rule, const float* logits, std::int32_t* experts, float* weights) {
  std::vector<double> left(logits, logits + rule.experts);
  std::vector<bool> taken(left.size());
  std::vector<std::pair<std::int32_t, float>> chosen;
  const bool broken = std::any_of(left.begin(), left.end(), [](double logit) { return std::isnan(logit); });
  for (std::int64_t i = 0; i < rule.per_token; ++i) {
    const auto best = static_cast<std::size_t>(best_of(left, taken));
    double sum = broken ? std::nan("") : 0.0;
    for (std::size_t x = 0; x < left.size(); ++x) {
      if (!taken[x] && !is_far(left[x], left[best], rule.config.margin)) sum += std::exp(left[x] - left[best]);
    }
    taken[best] = true;
    chosen.emplace_back(static_cast<std::int32_t>(best), static_cast<float>(1.0 / sum));
  }
  std::sort(chosen.begin(), chosen.end());
  for (std::size_t i = 0; i < chosen.size(); ++i) std::tie(experts[i], weights[i]) = chosen[i];
}

}  // namespace

void choose_experts(const RouterRule& rule, const float* logits, const float* choice_bias, std::int32_t* experts,
                    float* weights) {
  const std::int64_t X = rule.experts, k = rule.per_token;
  if (rule.config.scores == RouterConfig::Scores::kSparseMixer) {
    mix_sparsely(rule, logits, experts, weights);
  } else if (rule.config.is_plain()) {
    choose_experts(logits, X, k, rule.normed, experts, weights);
  } else {
    const std::vector<double> scores = scores_of(rule, logits);
    // Far from 0 a sigmoid is the same for many logits.
    const bool by_logits = rule.config.chooses_by_logits || (choice_bias == nullptr && rule.config.groups == 1);
    std::vector<double> choice = by_logits ? std::vector<double>(logits, logits + X) : scores;
    for (std::size_t x = 0; choice_bias != nullptr && x < choice.size(); ++x) choice[x] += choice_bias[x];
    std::vector<bool> taken = outside_of_groups(rule.config, choice);
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t best = best_of(choice, taken);
      taken[static_cast<std::size_t>(best)] = true;
      experts[i] = static_cast<std::int32_t>(best);
    }
    std::sort(experts, experts + k);
    const bool broken = std::any_of(logits, logits + X, [](float logit) { return std::isnan(logit); });
    double sum = broken ? std::nan("") : 0.0;
    for (std::int64_t i = 0; i < k; ++i) sum += scores[static_cast<std::size_t>(experts[i])];
    const double divisor = broken ? sum : rule.normed ? std::max(sum, rule.config.least_sum) : 1.0;
    for (std::int64_t i = 0; i < k; ++i)
      weights[i] = static_cast<float>(scores[static_cast<std::size_t>(experts[i])] / divisor * rule.config.scaling);
  }
  const double shared =
      rule.shared_gate ? 1.0 / (1.0 + std::exp(-static_cast<double>(logits[X]))) : rule.config.shared_weight;
  for (std::int64_t s = 0; s < rule.shared; ++s) {
    experts[k + s] = static_cast<std::int32_t>(X + s);
    weights[k + s] = static_cast<float>(shared);
  }
}

Routes choose_experts(const RouterRule& rule, const at::Tensor& logits_TL, const at::Tensor& choice_bias_X) {
  const std::int64_t T = logits_TL.size(0), L = rule.logits(), R = rule.routes();
  Routes routes{at::empty({T, R}, at::kInt), at::empty({T, R}, at::kFloat)};
  const float* bias = choice_bias_X.defined() ? choice_bias_X.const_data_ptr<float>() : nullptr;
  for (std::int64_t t = 0; t < T; ++t) {
    choose_experts(rule, logits_TL.const_data_ptr<float>() + t * L, bias,
                   routes.experts_Tk.data_ptr<std::int32_t>() + t * R, routes.weights_Tk.data_ptr<float>() + t * R);
  }
  return routes;
}

namespace {

// The sparse mixer's shares of two experts, in the order of `chosen_Tk`. Which logits are near the best is constant for
// autograd, as in transformers outside of training.
at::Tensor sparse_shares(const RouterConfig& config, const at::Tensor& logits_TX, const at::Tensor& chosen_Tk) {
  const auto pair = logits_TX.detach().gather(1, chosen_Tk).split(1, 1);
  const at::Tensor second_first_T1 = pair[1] > pair[0];
  const auto chosen = chosen_Tk.split(1, 1);
  const at::Tensor first_T1 = at::where(second_first_T1, chosen[1], chosen[0]),
                   second_T1 = at::where(second_first_T1, chosen[0], chosen[1]);
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const auto share = [&](const at::Tensor& left_TX, const at::Tensor& best_T1) {
    const at::Tensor plain_TX = logits_TX.detach(), best = plain_TX.gather(1, best_T1);
    const at::Tensor far_TX = (best - plain_TX) / at::maximum(plain_TX.abs(), best) > 2 * config.margin;
    return at::softmax(left_TX.masked_fill(far_TX, kNothing), 1).gather(1, best_T1);
  };
  const at::Tensor of_first = share(logits_TX, first_T1),
                   of_second = share(logits_TX.scatter(1, first_T1, kNothing), second_T1);
  return at::where(second_first_T1, at::cat({of_second, of_first}, 1), at::cat({of_first, of_second}, 1));
}

}  // namespace

at::Tensor route_weights(const RouterRule& rule, const at::Tensor& logits_TL, const at::Tensor& experts) {
  const at::Tensor logits_TX = logits_TL.narrow(1, 0, rule.experts), chosen_Tk = experts.narrow(1, 0, rule.per_token);
  const RouterConfig& config = rule.config;
  at::Tensor weights;
  if (config.scores == RouterConfig::Scores::kSparseMixer) {
    weights = sparse_shares(config, logits_TX, chosen_Tk);
  } else if (config.scores == RouterConfig::Scores::kSoftmax && rule.normed && config.least_sum == 0) {
    // Probabilities divided by their sum equal the softmax of the chosen logits alone.
    weights = at::softmax(logits_TX.gather(1, chosen_Tk), 1);
  } else {
    const bool sigmoid = config.scores == RouterConfig::Scores::kSigmoid;
    weights = (sigmoid ? at::sigmoid(logits_TX) : at::softmax(logits_TX, 1)).gather(1, chosen_Tk);
    if (rule.normed) weights = weights / weights.sum(1, true).clamp_min(config.least_sum);
  }
  if (config.scaling != 1.0) weights = weights * config.scaling;
  if (rule.shared == 0) return weights;
  const at::Tensor shared_T1 = rule.shared_gate
                                   ? at::sigmoid(logits_TL.narrow(1, rule.experts, 1))
                                   : at::full({logits_TL.size(0), 1}, config.shared_weight, logits_TL.options());
  return at::cat({weights, shared_T1.expand({-1, rule.shared})}, 1);
}

Routes choose_experts(const at::Tensor& logits_TX, std::int64_t k, bool normed) {
  return choose_experts(RouterRule{logits_TX.size(1), k, normed}, logits_TX, {});
}

ExpertGroups group_by_expert(const at::Tensor& experts_Tk, std::int64_t num_experts) {
  ExpertGroups out;
  const std::int64_t N = experts_Tk.numel();
  const auto* experts = experts_Tk.const_data_ptr<std::int32_t>();
  out.first.assign(static_cast<std::size_t>(num_experts) + 1, 0);
  for (std::int64_t i = 0; i < N; ++i) ++out.first[static_cast<std::size_t>(experts[i]) + 1];
  for (std::size_t x = 1; x < out.first.size(); ++x) out.first[x] += out.first[x - 1];
  std::vector<std::int64_t> next(out.first.begin(), out.first.end() - 1);
  out.entry.resize(static_cast<std::size_t>(N));
  out.row_of.resize(static_cast<std::size_t>(N));
  for (std::int64_t i = 0; i < N; ++i) {
    const std::int64_t row = next[static_cast<std::size_t>(experts[i])]++;
    out.entry[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(i);
    out.row_of[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(row);
  }
  return out;
}

}  // namespace magister
