// Distillation losses for one row: a teacher's kept entries (p) against the student's distribution (q) over the whole
// vocabulary, with the analytic gradient. The outcomes of a row are "entry i" and, with a bucket, "anything else"; its
// loss is the sum of phi(p, q) over them:
//   forward KL   p ln(p/q)                                            reverse KL   q ln(q/p)
//   JS(beta)     beta p ln(p/m) + (1-beta) q ln(q/m), m = beta p + (1-beta) q      total variation   |p - q| / 2
// With u = d phi / d ln q and U = sum of u, the gradient of the student's logit is (u_i - q_i U) / temperature for an
// entry and q_j (u_tail / q_tail - U) / temperature for any other token, so no [T, V] of log-probabilities is needed.
// beta 0 and 1 are forward and reverse KL, as in TRL's GKD; the limits of JS would be 0.
// Sources: GKD, arXiv 2306.13649; sampled rows, arXiv 2503.16870. All losses are natural logarithms, times
// temperature^2.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace magister {

struct DistillOptions {
  enum class Loss { kForwardKl, kReverseKl, kJs, kTotalVariation };
  // Treatment of the mass outside the teacher's kept entries (and of entries beyond the student's table, if that is
  // smaller):
  //   kBucket             one more outcome of teacher and student: the loss is at most that of the whole distributions
  //   kNone               it is dropped; the loss may be below 0
  //   kRenormalised       the teacher's kept entries are divided by their mass
  //   kRenormalisedBoth   so are the student's: tokens that are not kept get no gradient
  //   kGold               it goes to the label
  enum class Tail { kBucket, kNone, kRenormalised, kRenormalisedBoth, kGold };
  Loss loss = Loss::kForwardKl;
  Tail tail = Tail::kBucket;
  double beta = 0.5;         // kJs, 0 to 1
  double temperature = 1.0;  // divides the logits of both; the loss is multiplied by its square
  double weight = 1.0;       // of the distillation loss; 0: none (objective lm)
  double lm_weight = 0.0;    // of the cross entropy with the label, at temperature 1
};

// The loss of one row. One object is reused for many rows to avoid allocations.
class DistillRow {
 public:
  // vocab_size: the student's. teacher_vocab_size: 0: the same. The teacher's entries beyond the student's table have
  // no logit there, so their mass counts as not listed. sampled: log-probabilities are logs of the weights of an
  // unbiased sample (`encoding: sampled`), and the loss is -sum w ln q - entropy; only for forward KL at temperature 1,
  // else Error(kConfig).
  DistillRow(const DistillOptions& options, std::int64_t vocab_size, bool sampled, std::int64_t teacher_vocab_size = 0);

  // Sets the teacher's row. Entries with a negative id or a log-probability of -inf are padding. label: for kGold.
  // entropy: of the teacher's whole distribution, for sampled rows; NaN: unknown (0 is used, so the value is the cross
  // entropy). tail: the mass that is not listed, if it is known better than from a sum of rounded numbers; the entries
  // are scaled to leave it. NaN: unknown. Error(kData) for ids outside both vocabularies and for numbers that are not
  // log-probabilities.
  void set_teacher(std::span<const std::int32_t> ids, std::span<const float> logprobs, std::int32_t label,
                   double entropy, double tail = std::numeric_limits<double>::quiet_NaN());
  // Tokens that compare() needs log-probabilities of, and that Result::entries belong to.
  std::span<const std::int32_t> ids() const { return ids_; }

  struct Result {
    double loss = 0;   // times temperature^2
    double dense = 0;  // for tokens that are not listed: d loss / d logit_j = dense * q_j, q at the temperature
    // for the tokens of ids(): d loss / d logit
    std::span<const double> entries;
  };
  // student_logq: log-probabilities of ids() at the temperature, over the whole vocabulary.
  Result compare(std::span<const double> student_logq);

 private:
  void temper(double tail);
  double phi(double log_p, double p, double log_q, double q, double& u) const;

  DistillOptions options_;
  std::int64_t vocab_size_, teacher_vocab_size_;
  bool sampled_;
  bool has_bucket_ = false;
  double log_tail_ = 0, entropy_ = 0;
  std::vector<std::int32_t> ids_;
  std::vector<double> log_p_, u_, gradient_;
  std::vector<double> log_p_beyond_;  // of entries beyond the student's table
};

}  // namespace magister
