// The router's choice on a GPU, by the rule of choose_experts (model/routes.h) for every kind of router.
// Legend: T packed tokens, X experts of which a router chooses k for each token, S shared experts, L logits of a token,
// G groups of experts.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

// See RouterRule and RouterConfig (model_config.h) for each field.
struct RouteRule {
  // kPlain: a softmax whose experts are chosen by their logits, with nothing else.
  enum class Scores { kPlain, kSoftmax, kSigmoid, kSparseMixer };
  Scores scores = Scores::kPlain;
  int X = 0, k = 0, S = 0, L = 0;
  bool normed = false;
  bool shared_gate = false;
  bool by_logits = true;  // experts are chosen by logits instead of scores, both with the bias
  int G = 1, chosen_groups = 1;
  bool groups_by_best = false;
  double scaling = 1, least_sum = 0, margin = 0, shared_weight = 1;
};

// The experts of each token, the k chosen ones in ascending order and then the shared ones, and their weights. Among
// equal numbers the lower expert wins, scores are computed in f64, and a NaN logit is chosen last and makes the weights
// of the chosen experts NaN. One warp per token.
struct ChooseExperts {
  static constexpr const char* kName = "choose_experts";
  static constexpr int kMaxThreads = 128;
  static constexpr int kTokens = kMaxThreads / kWarp;  // of a block
  const float* logits_TL;
  const float* choice_bias_X;  // or nullptr
  const float* scales_X;       // factors of the chosen experts' weights, or nullptr
  std::int32_t* experts_TR;    // [T, k + S], as weights_TR
  float* weights_TR;
  std::int64_t T;
  RouteRule rule;

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>((T + kTokens - 1) / kTokens),
            .threads = kMaxThreads,
            .shared_bytes = kTokens * static_cast<std::size_t>(rule.X + rule.G) * sizeof(double)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t token = t.block_x() * t.num_warps() + t.warp();
    if (token >= T) return;  // the whole warp returns
    const float* logits = logits_TL + token * rule.L;
    std::int32_t* experts = experts_TR + token * (rule.k + rule.S);
    float* weights = weights_TR + token * (rule.k + rule.S);
    double* choice_X = reinterpret_cast<double*>(t.shared()) + t.warp() * (rule.X + rule.G);
    const Row row = read(t, logits, choice_X);
    if (rule.G > 1) leave_groups_out(t, choice_X, choice_X + rule.X);
    // Each round finds the next expert in the order "larger number first, then lower expert".
    double last = kInfinity, plain_sum = 0;
    int last_x = -1;
    for (int i = 0; i < rule.k; ++i) {
      last_x = next_best(t, choice_X, rule.X, last, last_x);
      double share = 0;
      if (rule.scores == RouteRule::Scores::kSparseMixer)
        share = 1.0 / near_best(t, choice_X, last, last_x, row.broken);
      if (t.lane() == 0) insert(experts, weights, i, last_x, static_cast<float>(share));
      if (rule.scores == RouteRule::Scores::kPlain && rule.normed) plain_sum += power(logits[last_x], row.largest);
    }
    t.sync_warp();
    weigh(t, logits, row, plain_sum, experts, weights);
  }

 private:
  static constexpr double kInfinity = __builtin_inf();
  struct Row {
    float largest;  // of the logits
    double sum;     // of the softmax's powers, where all scores need it
    bool broken;    // a logit is NaN
  };

  MAGISTER_DEVICE static bool is_nan(float x) { return x != x; }
  MAGISTER_DEVICE static double power(float logit, float largest) {
    return exp(static_cast<double>(logit) - static_cast<double>(largest));
  }
  MAGISTER_DEVICE double score(float logit, const Row& row) const {
    if (rule.scores == RouteRule::Scores::kSigmoid) return 1.0 / (1.0 + exp(-static_cast<double>(logit)));
    return power(logit, row.largest) / row.sum;
  }

  // Writes the numbers by which experts are chosen.
  template <typename Thread>
  MAGISTER_DEVICE Row read(Thread& t, const float* logits, double* choice_X) const {
    float largest = -__builtin_inff();
    int nans = 0;
    for (int x = t.lane(); x < rule.X; x += kWarp) {
      if (is_nan(logits[x])) ++nans;
      largest = fmaxf(largest, logits[x]);
    }
    Row row{warp_max(t, largest), 0, warp_sum(t, nans) > 0};
    if (rule.scores == RouteRule::Scores::kSoftmax) {
      double sum = 0;
      for (int x = t.lane(); x < rule.X; x += kWarp) sum += power(logits[x], row.largest);
      row.sum = warp_sum(t, sum);
    }
    for (int x = t.lane(); x < rule.X; x += kWarp) {
      const double number = rule.by_logits ? static_cast<double>(logits[x]) : score(logits[x], row);
      const double bias = choice_bias_X != nullptr ? static_cast<double>(choice_bias_X[x]) : 0.0;
      choice_X[x] = number != number ? -kInfinity : number + bias;
    }
    t.sync_warp();
    return row;
  }

  // The index of the next number in the order "larger first, then lower index" after `last` at last_i, which becomes
  // that number. NaN numbers are left out.
  template <typename Thread>
  MAGISTER_DEVICE static int next_best(Thread& t, const double* numbers, int count, double& last, int last_i) {
    double best = -kInfinity;
    int best_i = count;
    for (int i = t.lane(); i < count; i += kWarp) {
      const bool is_after = numbers[i] < last || (numbers[i] == last && i > last_i);
      if (is_after && (best_i == count || numbers[i] > best)) best = numbers[i], best_i = i;
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const double other = t.shuffle_xor(best, mask);
      const int other_i = t.shuffle_xor(best_i, mask);
      if (other_i < count && (best_i == count || other > best || (other == best && other_i < best_i)))
        best = other, best_i = other_i;
    }
    last = best;
    return best_i;
  }

  // Makes the numbers of experts outside the best groups NaN. counts_G: place for what groups count as.
  template <typename Thread>
  MAGISTER_DEVICE void leave_groups_out(Thread& t, double* choice_X, double* counts_G) const {
    const int size = rule.X / rule.G;
    for (int g = t.lane(); g < rule.G; g += kWarp) {
      double best = -kInfinity, second = -kInfinity;
      for (int x = g * size; x < (g + 1) * size; ++x) {
        const double number = choice_X[x];
        if (number > best) {
          second = best;
          best = number;
        } else if (number > second) {
          second = number;
        }
      }
      counts_G[g] = rule.groups_by_best ? best : best + second;
    }
    t.sync_warp();
    double last = kInfinity;
    int last_g = -1;
    for (int i = 0; i < rule.chosen_groups; ++i) last_g = next_best(t, counts_G, rule.G, last, last_g);
    for (int x = t.lane(); x < rule.X; x += kWarp) {
      const int group = x / size;
      const bool chosen = counts_G[group] > last || (counts_G[group] == last && group <= last_g);
      if (!chosen) choice_X[x] = NAN;
    }
    t.sync_warp();
  }

  // The sparse mixer's sum for the expert that was just chosen: over those not chosen before whose logits are near it.
  template <typename Thread>
  MAGISTER_DEVICE double near_best(Thread& t, const double* logits_X, double best, int best_x, bool broken) const {
    double sum = 0;
    for (int x = t.lane(); x < rule.X; x += kWarp) {
      const bool left = logits_X[x] < best || (logits_X[x] == best && x >= best_x);
      const bool far = (best - logits_X[x]) / fmax(fabs(logits_X[x]), best) > 2 * rule.margin;
      if (left && !far) sum += exp(logits_X[x] - best);
    }
    return broken ? NAN : warp_sum(t, sum);
  }

  // Inserts an expert and its weight into the first `count` ones, which stay ascending.
  MAGISTER_DEVICE static void insert(std::int32_t* experts, float* weights, int count, int expert, float weight) {
    int at = count;
    for (; at > 0 && experts[at - 1] > expert; --at) {
      experts[at] = experts[at - 1];
      weights[at] = weights[at - 1];
    }
    experts[at] = expert;
    weights[at] = weight;
  }

  // What the chosen experts' scores are divided by. plain_sum: of their powers.
  template <typename Thread>
  MAGISTER_DEVICE double divisor(Thread& t, const float* logits, const Row& row, double plain_sum,
                                 const std::int32_t* experts) const {
    if (rule.scores == RouteRule::Scores::kPlain) {
      double others = 0;  // all powers if not normed, else only NaN
      for (int x = t.lane(); x < rule.X; x += kWarp) {
        if (!rule.normed || is_nan(logits[x])) others += power(logits[x], row.largest);
      }
      return plain_sum + warp_sum(t, others);
    }
    if (row.broken) return NAN;
    if (!rule.normed) return 1;
    double sum = 0;
    for (int i = 0; i < rule.k; ++i) sum += score(logits[experts[i]], row);
    return sum < rule.least_sum ? rule.least_sum : sum;
  }

  // experts: the chosen ones. weights: those of a sparse mixer.
  template <typename Thread>
  MAGISTER_DEVICE void weigh(Thread& t, const float* logits, const Row& row, double plain_sum, std::int32_t* experts,
                             float* weights) const {
    const bool mixes = rule.scores == RouteRule::Scores::kSparseMixer;
    const double divides = mixes ? 1 : divisor(t, logits, row, plain_sum, experts);
    for (int i = t.lane(); i < rule.k; i += kWarp) {
      const float logit = logits[experts[i]];
      float weight = weights[i];
      if (rule.scores == RouteRule::Scores::kPlain) {
        weight = static_cast<float>(power(logit, row.largest) / divides);
      } else if (!mixes) {
        weight = static_cast<float>(score(logit, row) / divides * rule.scaling);
      }
      weights[i] = scales_X != nullptr ? weight * scales_X[experts[i]] : weight;
    }
    const double shared =
        rule.shared_gate ? 1.0 / (1.0 + exp(-static_cast<double>(logits[rule.X]))) : rule.shared_weight;
    for (int s = t.lane(); s < rule.S; s += kWarp) {
      experts[rule.k + s] = rule.X + s;
      weights[rule.k + s] = static_cast<float>(shared);
    }
  }
};

}  // namespace magister::gpu
