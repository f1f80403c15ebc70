// Golden values of the losses and the rules that hold between them. The 2 x 4 x 4 logits are those of torchtune's
// tests/torchtune/modules/loss/test_kd_losses.py (bf16); soft cross entropy 1.7209 and reverse KL 0.6775 are
// torchtune's own values.
#include "magister/train/distill_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dense_losses.h"
#include "magister/core/error.h"

namespace magister {
namespace distill_loss_test {

using test::Loss;
using test::Tail;

const at::Tensor& student() {
  static const at::Tensor logits =
      at::tensor({1.1250, -0.4102, -0.0879, -2.5000, 0.2676,  0.3535,  0.8711,  -1.4688, -0.1084, 1.6641,  0.0084,
                  0.1196, 0.5000,  -0.6406, -0.2236, -1.5938, -1.5312, -1.9219, 0.0000,  -0.5039, -1.5391, 1.5312,
                  0.5820, 0.2695,  -0.3887, 1.2188,  0.0000,  0.6055,  0.5000,  1.3828,  0.1309,  -1.0312})
          .view({8, 4})
          .to(at::kBFloat16)
          .to(at::kDouble);
  return logits;
}
const at::Tensor& teacher() {
  static const at::Tensor logits =
      at::tensor({-0.0381, -1.2578, -1.2031, 0.0947,  -0.7852, 0.4492, 1.5547, 0.0972, 0.8203,  0.0012,  0.7656,
                  0.3477,  -1.5781, 0.4297,  0.5977,  0.3926,  1.5156, 0.1641, 2.0781, -0.7734, -0.5898, 0.4453,
                  -0.7969, 0.6328,  0.6289,  -0.8359, 0.9258,  0.2109, 0.0006, 0.5195, 3.2344,  -1.5781})
          .view({8, 4})
          .to(at::kBFloat16)
          .to(at::kDouble);
  return logits;
}

double row_loss(const at::Tensor& student_logits, const at::Tensor& teacher_logits, std::int64_t k,
                const DistillOptions& options, std::int64_t label = 1) {
  const auto [values, ids] = at::log_softmax(teacher_logits, 0).topk(k);
  const at::Tensor i32 = ids.to(at::kInt).contiguous(), f32 = values.to(at::kFloat).contiguous();
  DistillRow row(options, student_logits.size(0), false);
  row.set_teacher({i32.const_data_ptr<std::int32_t>(), static_cast<std::size_t>(k)},
                  {f32.const_data_ptr<float>(), static_cast<std::size_t>(k)}, static_cast<std::int32_t>(label), 0);
  const at::Tensor log_q = at::log_softmax(student_logits / options.temperature, 0);
  std::vector<double> chosen;
  for (const std::int32_t id : row.ids()) chosen.push_back(log_q[id].item<double>());
  return row.compare(chosen).loss;
}

double mean_loss(std::int64_t k, const DistillOptions& options) {
  double sum = 0;
  for (std::int64_t t = 0; t < 8; ++t) sum += row_loss(student()[t], teacher()[t], k, options);
  return sum / 8;
}

DistillOptions of(Loss loss, Tail tail = Tail::kBucket, double beta = 0.5, double temperature = 1) {
  return {loss, tail, beta, temperature, 1.0, 0.0};
}

TEST(DistillLoss, GoldenValues) {
  double entropy = 0;
  for (std::int64_t t = 0; t < 8; ++t) {
    const at::Tensor log_p = at::log_softmax(teacher()[t], 0);
    entropy -= (log_p.exp() * log_p).sum().item<double>() / 8;
  }
  EXPECT_NEAR(mean_loss(4, of(Loss::kForwardKl)), 0.6293, 1e-4);
  EXPECT_NEAR(mean_loss(4, of(Loss::kForwardKl)) + entropy, 1.7209, 1e-4);
  EXPECT_NEAR(mean_loss(4, of(Loss::kReverseKl)), 0.6775, 1e-4);
  EXPECT_NEAR(mean_loss(4, of(Loss::kJs, Tail::kBucket, 0.1)), 0.0534, 1e-4);
  EXPECT_NEAR(mean_loss(4, of(Loss::kJs, Tail::kBucket, 0.5)), 0.1415, 1e-4);
  EXPECT_NEAR(mean_loss(4, of(Loss::kJs, Tail::kBucket, 0.9)), 0.0567, 1e-4);
  EXPECT_NEAR(mean_loss(4, of(Loss::kJs, Tail::kBucket, 0.0)), 0.6293, 1e-4);
  EXPECT_NEAR(mean_loss(4, of(Loss::kJs, Tail::kBucket, 1.0)), 0.6775, 1e-4);
  EXPECT_NEAR(mean_loss(2, of(Loss::kForwardKl, Tail::kNone)), 0.6314, 1e-4);
  EXPECT_NEAR(mean_loss(2, of(Loss::kForwardKl, Tail::kBucket)), 0.4880, 1e-4);
  EXPECT_NEAR(mean_loss(2, of(Loss::kForwardKl, Tail::kRenormalised)), 1.0576, 1e-4);
  EXPECT_NEAR(mean_loss(2, of(Loss::kForwardKl, Tail::kRenormalisedBoth)), 0.3569, 1e-4);
}

// verl's issue 7806: with one kept entry a truncated reverse KL is negative and, clamped, has no gradient.
TEST(DistillLoss, BucketMendsTruncatedReverseKl) {
  const at::Tensor q = at::log(at::tensor({0.6, 0.4})), p = at::log(at::tensor({0.9, 0.1}));
  EXPECT_NEAR(row_loss(q, p, 1, of(Loss::kReverseKl, Tail::kNone)), -0.2433, 1e-4);
  EXPECT_NEAR(row_loss(q, p, 1, of(Loss::kReverseKl, Tail::kBucket)), 0.3112, 1e-4);
  DistillRow row(of(Loss::kReverseKl), 2, false);
  const std::int32_t id = 0;
  const float log_p = std::log(0.9f);
  row.set_teacher({&id, 1}, {&log_p, 1}, 0, 0);
  const double log_q = std::log(0.6);
  const DistillRow::Result result = row.compare({&log_q, 1});
  EXPECT_LT(result.entries[0], -0.1);  // the student's 0.6 is to grow
  EXPECT_NEAR(result.entries[0] + result.dense * 0.4, 0, 1e-12);
}

TEST(DistillLoss, RulesBetweenLosses) {
  at::manual_seed(5);
  for (int i = 0; i < 20; ++i) {
    const at::Tensor q = at::randn({30}, at::kDouble) * 2, p = at::randn({30}, at::kDouble) * 2;
    for (const Loss loss : {Loss::kForwardKl, Loss::kReverseKl, Loss::kJs, Loss::kTotalVariation}) {
      const double whole = row_loss(q, p, 30, of(loss));
      double before = whole + 1e-6;  // coarser outcomes never distinguish distributions better
      for (const std::int64_t k : {29, 12, 5, 1}) {
        const double bucket = row_loss(q, p, k, of(loss));
        EXPECT_LE(bucket, before + 1e-4);  // the rest of f32 numbers is rounded, and reverse KL takes its logarithm
        EXPECT_GE(bucket, -1e-6);
        before = bucket;
      }
      for (const Tail tail : {Tail::kNone, Tail::kRenormalised, Tail::kRenormalisedBoth, Tail::kGold}) {
        EXPECT_NEAR(row_loss(q, p, 30, of(loss, tail)), whole, 1e-6);
      }
      EXPECT_NEAR(row_loss(p, p, 30, of(loss, Tail::kBucket, 0.5, 2)), 0, 1e-6);
      EXPECT_NEAR(row_loss(p, p, 7, of(loss)), 0, 1e-6);
    }
  }
}

// The rest's mass at a temperature is bounded by what the order of the entries allows: a flat rest meets it exactly.
TEST(DistillLoss, TemperedRestOfAFlatTailIsExact) {
  at::Tensor p = at::full({40}, -3.0, at::kDouble);
  p[0] = 1.0;
  p[1] = 0.5;
  const at::Tensor q = at::randn({40}, at::kDouble);
  for (const double temperature : {0.5, 2.0, 4.0}) {
    const DistillOptions options = of(Loss::kForwardKl, Tail::kBucket, 0.5, temperature);
    const at::Tensor log_p = at::log_softmax(p / temperature, 0), log_q = at::log_softmax(q / temperature, 0);
    double expected = 0, rest_p = 1, rest_q = 1;
    for (std::int64_t i = 0; i < 3; ++i) {
      const double a = log_p[i].item<double>(), b = log_q[i].item<double>();
      expected += std::exp(a) * (a - b);
      rest_p -= std::exp(a);
      rest_q -= std::exp(b);
    }
    expected += rest_p * std::log(rest_p / rest_q);
    // Kept: 0, 1 and one of the flat entries, which has to be number 2 to be compared.
    at::Tensor ordered = p.clone();
    ordered[2] += 1e-9;
    EXPECT_NEAR(row_loss(q, ordered, 3, options), expected * temperature * temperature,
                1e-5 * temperature * temperature);
  }
}

// All losses, also where few entries are kept at another temperature, which the dense oracle does not know.
TEST(DistillLoss, GradientsAreFiniteDifferences) {
  at::manual_seed(2);
  constexpr std::int64_t V = 12, k = 4;
  const at::Tensor z = at::randn({V}, at::kDouble), p = at::randn({V}, at::kDouble) * 2;
  double worst = 0;
  for (const Loss loss : {Loss::kForwardKl, Loss::kReverseKl, Loss::kJs, Loss::kTotalVariation}) {
    for (const Tail tail : {Tail::kBucket, Tail::kNone, Tail::kRenormalised, Tail::kRenormalisedBoth, Tail::kGold}) {
      for (const double temperature : {1.0, 2.5, 0.7}) {
        const DistillOptions options = of(loss, tail, 0.3, temperature);
        const auto [values, ids] = at::log_softmax(p, 0).topk(k);
        const at::Tensor i32 = ids.to(at::kInt).contiguous(), f32 = values.to(at::kFloat).contiguous();
        DistillRow row(options, V, false);
        row.set_teacher({i32.const_data_ptr<std::int32_t>(), k}, {f32.const_data_ptr<float>(), k}, 11, 0);
        const at::Tensor log_q = at::log_softmax(z / temperature, 0);
        std::vector<double> chosen;
        for (const std::int32_t id : row.ids()) chosen.push_back(log_q[id].item<double>());
        const DistillRow::Result result = row.compare(chosen);
        at::Tensor gradient = log_q.exp() * result.dense;
        for (std::size_t i = 0; i < chosen.size(); ++i) gradient[row.ids()[i]] = result.entries[i];
        for (std::int64_t j = 0; j < V; ++j) {
          const double step = 1e-5;
          at::Tensor above = z.clone(), below = z.clone();
          above[j] += step;
          below[j] -= step;
          const double slope = (row_loss(above, p, k, options, 11) - row_loss(below, p, k, options, 11)) / (2 * step);
          worst = std::max(worst, std::abs(slope - gradient[j].item<double>()));
        }
      }
    }
  }
  std::printf("finite differences: %.1e at most\n", worst);
  EXPECT_LT(worst, 1e-7);
}

// f16 entries sum to 1e-3 of the truth, so the rest of 1e-2 that they leave is off by a tenth; the stored one is not.
TEST(DistillLoss, AKnownRestMendsRoundedEntries) {
  at::manual_seed(8);
  double worst_known = 0, worst_summed = 0;
  for (int i = 0; i < 50; ++i) {
    const at::Tensor p = at::log_softmax(at::randn({40}, at::kDouble) * 3, 0),
                     q = at::log_softmax(at::randn({40}, at::kDouble) * 3, 0);
    const auto [values, ids] = p.topk(8);
    const at::Tensor i32 = ids.to(at::kInt).contiguous();
    const auto loss = [&](const at::Tensor& logprobs, double tail) {
      const at::Tensor f32 = logprobs.to(at::kFloat).contiguous();
      DistillRow row(of(Loss::kForwardKl), 40, false);
      row.set_teacher({i32.const_data_ptr<std::int32_t>(), 8}, {f32.const_data_ptr<float>(), 8}, 1, 0, tail);
      std::vector<double> chosen;
      for (const std::int32_t id : row.ids()) chosen.push_back(q[id].item<double>());
      return row.compare(chosen).loss;
    };
    const double none = std::nan(""), exact = loss(values, none), tail = 1 - values.exp().sum().item<double>();
    worst_known = std::max(worst_known, std::abs(loss(values.to(at::kHalf), tail) - exact));
    worst_summed = std::max(worst_summed, std::abs(loss(values.to(at::kHalf), none) - exact));
  }
  std::printf("f16 entries: loss off by %.1e with the stored rest, %.1e without\n", worst_known, worst_summed);
  EXPECT_LT(worst_known, 5e-3);
  EXPECT_LT(worst_known, worst_summed);
}

TEST(DistillLoss, RefusesWhatIsNoDistribution) {
  DistillRow row(of(Loss::kForwardKl), 10, false);
  const std::int32_t id = 3;
  const float above = 0.5f, nan = std::nanf("");
  EXPECT_THROW(row.set_teacher({&id, 1}, {&above, 1}, 0, 0), Error);
  EXPECT_THROW(row.set_teacher({&id, 1}, {&nan, 1}, 0, 0), Error);
  EXPECT_THROW(DistillRow(of(Loss::kJs, Tail::kBucket, 1.5), 10, false), Error);
  EXPECT_THROW(DistillRow(of(Loss::kJs, Tail::kBucket, 0.5, 0), 10, false), Error);
}

}  // namespace distill_loss_test
}  // namespace magister
