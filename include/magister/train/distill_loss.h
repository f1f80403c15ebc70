// The losses of distillation for one row: a teacher's kept entries (p) against the student's distribution (q) over the whole vocabulary,
// and the analytic gradient. A row has the outcomes "entry i" and, with a bucket, "anything else"; its loss is a sum of phi(p, q) over them:
//   forward KL   p ln(p/q)                                            reverse KL   q ln(q/p)
//   JS(beta)     beta p ln(p/m) + (1-beta) q ln(q/m), m = beta p + (1-beta) q      total variation   |p - q| / 2
// With u = d phi / d ln q and U = sum of u, the gradient of the student's logit is (u_i - q_i U) / temperature for an entry and
// q_j (u_tail / q_tail - U) / temperature for any other token: no [T, V] of log-probabilities is ever needed.
// beta 0 and 1 are forward and reverse KL, as TRL's GKD has it; the limits of JS would be 0.
// Sources: GKD, arXiv 2306.13649; sampled rows, arXiv 2503.16870. All losses are natural logarithms, times temperature^2.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace magister {

struct DistillOptions {
  enum class Loss { kForwardKl, kReverseKl, kJs, kTotalVariation };
  // What becomes of the mass that the teacher's kept entries leave:
  //   (and, where the student's table is the smaller one, its entries beyond that)
  //   kBucket             one more outcome of teacher and student: the loss is at most that of the whole distributions
  //   kNone               it is dropped; the loss may be below 0
  //   kRenormalised       the teacher's kept entries are divided by their mass
  //   kRenormalisedBoth   the student's, too: tokens that are not kept get no gradient
  //   kGold               it goes to the label
  enum class Tail { kBucket, kNone, kRenormalised, kRenormalisedBoth, kGold };
  Loss loss = Loss::kForwardKl;
  Tail tail = Tail::kBucket;
  double beta = 0.5;         // of kJs, 0 to 1
  double temperature = 1.0;  // divides both's logits; the loss is multiplied by its square
  double weight = 1.0;       // of the distillation; 0: none (objective lm)
  double lm_weight = 0.0;    // of the cross entropy with the label, at temperature 1
};

// One row. Reused from row to row to spare allocations.
class DistillRow {
 public:
  // vocab_size: of the student; teacher_vocab_size: 0: the same. The teacher's entries beyond the student's table have no logit there: their mass
  // counts with what the row does not list. sampled: log-probabilities are logs of the weights of an unbiased sample (`encoding: sampled`):
  // the loss is -sum w ln q - entropy; only forward KL at temperature 1, else Error(kConfig).
  DistillRow(const DistillOptions& options, std::int64_t vocab_size, bool sampled, std::int64_t teacher_vocab_size = 0);

  // The teacher's row: entries with an id below 0 or a log-probability of -inf are padding. label: for kGold. entropy: of the teacher's
  // whole distribution, for sampled rows; NaN: unknown (0 is taken: the value is then the cross entropy). tail: the mass of what is not
  // listed, where it is known better than by the sum of rounded numbers: the entries are scaled to leave it. NaN: unknown. Error(kData) for ids outside both
  // vocabularies and for numbers that are no log-probabilities.
  void set_teacher(std::span<const std::int32_t> ids, std::span<const float> logprobs, std::int32_t label,
                   double entropy, double tail = std::numeric_limits<double>::quiet_NaN());
  // Tokens that gradient() is about.
  std::span<const std::int32_t> ids() const { return ids_; }

  struct Result {
    double loss = 0;   // times temperature^2
    double dense = 0;  // of a token that is not listed: d loss / d logit_j = dense * q_j, q at the temperature
    // of the tokens of ids(): d loss / d logit
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
  std::vector<double> log_p_beyond_;  // of entries that the student has no row for
};

}  // namespace magister
