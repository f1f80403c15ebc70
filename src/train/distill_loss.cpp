// One row, in f64: 64 entries cost 2 us, the head's products of a row 3 ms.
#include "magister/train/distill_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "magister/core/error.h"

namespace magister {
namespace {

using Loss = DistillOptions::Loss;
using Tail = DistillOptions::Tail;

// The student's rest is 1 minus a sum of f32 exponentials, so below this it is rounding error. Where a rest is a
// divisor or its log is taken, it counts as this much.
constexpr double kSmallestTail = 1e-7;
// Log-probabilities are differences of rounded numbers, and f16 has 11 bits.
constexpr float kSlack = 0.02f;

Loss simplified(const DistillOptions& options) {
  if (options.loss == Loss::kJs && options.beta == 0) return Loss::kForwardKl;
  if (options.loss == Loss::kJs && options.beta == 1) return Loss::kReverseKl;
  return options.loss;
}

}  // namespace

DistillRow::DistillRow(const DistillOptions& options, std::int64_t vocab_size, bool sampled,
                       std::int64_t teacher_vocab_size)
    : options_(options),
      vocab_size_(vocab_size),
      teacher_vocab_size_(teacher_vocab_size > 0 ? teacher_vocab_size : vocab_size),
      sampled_(sampled) {
  MAGISTER_CHECK(options.beta >= 0 && options.beta <= 1, ExitCode::kConfig,
                 "distill.beta is {} (it mixes two distributions); choose 0 to 1", options.beta);
  MAGISTER_CHECK(options.temperature > 0 && std::isfinite(options.temperature), ExitCode::kConfig,
                 "distill.temperature is {} (logits are divided by it); choose a number above 0", options.temperature);
  options_.loss = simplified(options);
  MAGISTER_CHECK(
      !sampled || (options_.loss == Loss::kForwardKl && options_.temperature == 1), ExitCode::kConfig,
      "the teacher's rows are samples, the loss is not forward_kl at temperature 1 (only that is linear in the "
      "teacher's probabilities, others would be biased); choose it, or store the rows as plain or compact");
}

void DistillRow::set_teacher(std::span<const std::int32_t> ids, std::span<const float> logprobs, std::int32_t label,
                             double entropy, double tail) {
  ids_.clear();
  log_p_.clear();
  log_p_beyond_.clear();
  entropy_ = sampled_ && std::isfinite(entropy) ? entropy : 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || logprobs[i] == -std::numeric_limits<float>::infinity()) continue;
    MAGISTER_CHECK(
        ids[i] < std::max(vocab_size_, teacher_vocab_size_), ExitCode::kData,
        "the teacher's row has token {}, the student's vocabulary {} entries (they are not of one tokenizer); "
        "choose a student of the teacher's vocabulary",
        ids[i], vocab_size_);
    MAGISTER_CHECK(
        logprobs[i] <= kSlack, ExitCode::kData,
        "the teacher's row gives token {} the log-probability {} (not a log-probability); check the teacher's file",
        ids[i], logprobs[i]);
    if (ids[i] >= vocab_size_) {
      log_p_beyond_.push_back(logprobs[i]);
      continue;
    }
    ids_.push_back(ids[i]);
    log_p_.push_back(logprobs[i]);
  }
  temper(tail);
  if (options_.tail != Tail::kGold || sampled_ || !std::isfinite(log_tail_)) return;
  const auto found = std::find(ids_.begin(), ids_.end(), label);
  if (found == ids_.end()) {
    ids_.push_back(label);
    log_p_.push_back(log_tail_);
  } else {
    double& log_p = log_p_[static_cast<std::size_t>(found - ids_.begin())];
    log_p = std::log(std::exp(log_p) + std::exp(log_tail_));
  }
}

// Brings the teacher's masses and that of the rest to the temperature. At a temperature other than 1 the mass of the
// rest is not known from its sum. It is computed as if each of its tokens were as probable as the order allows, that
// is, as the last kept entry (above temperature 1 this is the least that p^(1/temperature) can sum to), but never
// beyond an even spread over all other tokens.
void DistillRow::temper(double known_tail) {
  const auto each = [this](const auto& visit) {
    for (std::vector<double>* const entries : {&log_p_, &log_p_beyond_})
      for (double& log_p : *entries) visit(log_p);
  };
  double mass = 0, least = 0;
  each([&](double log_p) {
    mass += std::exp(log_p);
    least = std::min(least, log_p);
  });
  const auto kept = static_cast<std::int64_t>(log_p_.size() + log_p_beyond_.size());
  double tail = kept == teacher_vocab_size_ ? 0.0 : std::clamp(1.0 - mass, 0.0, 1.0);
  if (!sampled_ && kept < teacher_vocab_size_ && known_tail >= 0 && known_tail < 1 && mass > 0) {
    tail = known_tail;
    const double factor = std::log((1 - tail) / mass);
    each([&](double& log_p) { log_p += factor; });
    mass = 1 - tail;
  }
  if (options_.temperature != 1) {
    const double power = 1 / options_.temperature, others = static_cast<double>(teacher_vocab_size_ - kept);
    if (tail > 0) {
      const double even = std::pow(others, 1 - power) * std::pow(tail, power);
      const double densest = kept == 0 ? even : tail * std::exp((power - 1) * least);
      tail = power < 1 ? std::min(densest, even) : std::max(densest, even);
    }
    mass = 0;
    each([&](double& log_p) { mass += std::exp(log_p *= power); });
    const double log_sum = std::log(mass + tail);
    each([&](double& log_p) { log_p -= log_sum; });
    mass /= std::exp(log_sum);
    tail /= std::exp(log_sum);
  }
  double beyond = 0;
  for (const double log_p : log_p_beyond_) beyond += std::exp(log_p);
  const bool renormalised = options_.tail == Tail::kRenormalised || options_.tail == Tail::kRenormalisedBoth;
  if (renormalised && !sampled_) {
    for (double& log_p : log_p_) log_p -= std::log(mass - beyond);
  }
  log_tail_ = std::log(tail + beyond);
  has_bucket_ = options_.tail == Tail::kBucket && !sampled_ && static_cast<std::int64_t>(ids_.size()) < vocab_size_;
}

// The loss of one outcome, and its derivative u by ln q.
double DistillRow::phi(double log_p, double p, double log_q, double q, double& u) const {
  switch (options_.loss) {
    case Loss::kForwardKl:
      u = -p;
      return p > 0 ? p * (log_p - log_q) : 0;
    case Loss::kReverseKl:
      u = q > 0 ? q * (log_q - log_p + 1) : 0;
      return q > 0 ? q * (log_q - log_p) : 0;
    case Loss::kJs: {
      const double beta = options_.beta, m = beta * p + (1 - beta) * q;
      u = q > 0 ? (1 - beta) * q * (log_q - std::log(m)) : 0;
      return u + (p > 0 ? beta * p * (log_p - std::log(m)) : 0);
    }
    case Loss::kTotalVariation:
      u = q > p ? q / 2 : q < p ? -q / 2 : 0;
      return std::abs(p - q) / 2;
  }
  return 0;
}

DistillRow::Result DistillRow::compare(std::span<const double> student_logq) {
  const std::size_t n = ids_.size();
  MAGISTER_ASSERT(student_logq.size() == n);
  const bool both = options_.tail == Tail::kRenormalisedBoth && !sampled_;
  double kept = 0;
  for (const double log_q : student_logq) kept += std::exp(log_q);
  const double log_kept = both ? std::log(kept) : 0;
  u_.resize(n);
  gradient_.resize(n);
  double loss = sampled_ ? -entropy_ : 0, sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double log_q = student_logq[i] - log_kept, p = std::exp(log_p_[i]);
    if (sampled_) {
      u_[i] = -p;
      loss -= p * log_q;
    } else {
      loss += phi(log_p_[i], p, log_q, std::exp(log_q), u_[i]);
    }
    sum += u_[i];
  }
  double u_tail = 0, q_tail = 1;
  if (has_bucket_) {
    q_tail = std::max(1 - kept, kSmallestTail);
    // Reverse KL divides by the teacher's rest.
    const double log_tail =
        options_.loss == Loss::kReverseKl ? std::max(log_tail_, std::log(kSmallestTail)) : log_tail_;
    loss += phi(log_tail, std::exp(log_tail), std::log(q_tail), q_tail, u_tail);
    sum += u_tail;
  }
  const double factor = options_.temperature;  // temperature^2 / temperature
  for (std::size_t i = 0; i < n; ++i) gradient_[i] = factor * (u_[i] - std::exp(student_logq[i] - log_kept) * sum);
  return {loss * options_.temperature * options_.temperature, both ? 0 : factor * (u_tail / q_tail - sum), gradient_};
}

}  // namespace magister
