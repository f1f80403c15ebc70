// Losses and gradients of the head, by the CPU's code and by a GPU's, against autograd over dense logits in f64
// (dense_losses.h), bits over threads, and rows that do not count.
#include "magister/train/head_loss.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "dense_losses.h"
#include "magister/core/error.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace head_loss_test {

using test::Loss;
using test::Tail;

struct Problem {
  at::Tensor hidden_TD, head_VD;
  HeadLossTargets targets;

  // The teacher's distributions are those of another head of like spread; its k best are kept.
  Problem(std::int64_t T, std::int64_t D, std::int64_t V, std::int64_t k, double spread = 0.4) {
    at::manual_seed(11);
    hidden_TD = at::randn({T, D});
    head_VD = at::randn({V, D}) * spread;
    const at::Tensor teacher_TV =
        at::log_softmax((at::mm(hidden_TD, head_VD.t()) + at::randn({T, V})).to(at::kDouble), 1);
    auto [values, ids] = teacher_TV.topk(k, 1);
    targets.teacher_ids_TK = ids.to(at::kInt);
    targets.teacher_logprobs_TK = values.to(at::kFloat).contiguous();
    targets.labels_T = at::randint(0, V, {T}, at::kLong);
    targets.labels_T.narrow(0, 0, T / 2).copy_(ids.select(1, 1).narrow(0, 0, T / 2));  // labels that are kept, too
    for (std::int64_t t = 3; t < T; t += 7) targets.labels_T[t] = -100;
    targets.teacher_valid_T = at::ones({T}, at::kByte);
    for (std::int64_t t = 1; t < T; t += 5) targets.teacher_valid_T[t] = 0;
  }
};

double relative(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b).abs().max() / b.abs().max().clamp_min(1e-30)).item<double>();
}

// Measured, of both: 4e-7 of the loss, 2e-6 of the gradients' largest number.
void expect_dense(const Problem& problem, HeadLossOptions options, const std::string& of, double limit = 6e-6) {
  const test::DenseResult dense =
      test::dense_head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 0.5);
  for (options.gpu_code = false;; options.gpu_code = true) {
    const std::string what = of + (options.gpu_code ? ", a GPU's code" : "");
    at::Tensor gradient_VD = at::full(problem.head_VD.sizes(), 0.25f);
    const HeadLossResult found =
        head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 0.5, gradient_VD);
    EXPECT_NEAR(found.loss, dense.loss, 2e-6 * std::max(1.0, std::abs(dense.loss))) << what;
    EXPECT_LT(relative(found.hidden_gradient_TD, dense.hidden_gradient_TD), limit) << what;
    EXPECT_LT(relative(gradient_VD - 0.25, dense.head_gradient_VD), limit) << what;
    if (options.gpu_code) return;
  }
}

HeadLossOptions options_of(Loss loss, Tail tail, double lm_weight = 0, double temperature = 1, double beta = 0.3) {
  HeadLossOptions options;
  options.distill = {loss, tail, beta, temperature, 1.0, lm_weight};
  return options;
}

TEST(HeadLoss, CrossEntropyIsThatOfDenseLogits) {
  Problem problem(70, 40, 1000, 5);
  HeadLossOptions options = options_of(Loss::kForwardKl, Tail::kBucket, 1.0);
  options.distill.weight = 0;
  expect_dense(problem, options, "cross entropy");
  problem.targets = {.labels_T = problem.targets.labels_T};
  expect_dense(problem, options, "no teacher");
}

TEST(HeadLoss, EveryLossAndTailIsThatOfDenseLogits) {
  const Problem problem(50, 24, 700, 6);
  for (const Loss loss : {Loss::kForwardKl, Loss::kReverseKl, Loss::kJs, Loss::kTotalVariation}) {
    for (const Tail tail : {Tail::kBucket, Tail::kNone, Tail::kRenormalised, Tail::kRenormalisedBoth, Tail::kGold}) {
      const std::string what = fmt::format("loss {} tail {}", static_cast<int>(loss), static_cast<int>(tail));
      expect_dense(problem, options_of(loss, tail), what);
      expect_dense(problem, options_of(loss, tail, 0.3), what + " and cross entropy");
    }
  }
}

// The wider a head, the fewer of its rows are multiplied at a time: 192; 72, which divides neither 480 nor 192; 24. The
// last slice is not full. Tiles have 16 rows of text, of 500 rows 48, of 4,100 rows 96. Measured of 52: 1.2e-6.
TEST(HeadLoss, LossesOfHeadsOfAnyWidthAreThoseOfDenseLogits) {
  for (const auto& [T, D] : {std::pair(52, 100), {52, 300}, {52, 1200}, {500, 300}, {4100, 100}}) {
    const Problem problem(T, D, 1211, 8, 1 / std::sqrt(static_cast<double>(D)));
    expect_dense(problem, options_of(Loss::kForwardKl, Tail::kBucket, 0.3),
                 std::to_string(T) + " rows of width " + std::to_string(D), 3.6e-6);
  }
}

TEST(HeadLoss, TemperatureIsThatOfDenseLogitsWhereAllEntriesAreKept) {
  const Problem problem(30, 16, 90, 90);
  for (const Loss loss : {Loss::kForwardKl, Loss::kReverseKl, Loss::kJs, Loss::kTotalVariation}) {
    expect_dense(problem, options_of(loss, Tail::kBucket, 0.2, 2.5), fmt::format("loss {}", static_cast<int>(loss)));
  }
}

TEST(HeadLoss, MultiplierAndSoftcapAreThoseOfDenseLogits) {
  const Problem problem(60, 32, 500, 6, 1.0);
  HeadLossOptions options = options_of(Loss::kForwardKl, Tail::kBucket, 0.3);
  options.scaling = {0.125, 0};
  expect_dense(problem, options, "multiplier");
  options.scaling = {0.7, 4.0};
  expect_dense(problem, options, "soft cap");
}

TEST(HeadLoss, SampledRowsWeighLogProbabilities) {
  Problem problem(40, 24, 300, 6);
  problem.targets.sampled = true;
  problem.targets.teacher_logprobs_TK = at::log(at::softmax(at::randn({40, 6}), 1)).contiguous();
  problem.targets.teacher_entropy_T = at::rand({40});
  problem.targets.row_weight_T = at::rand({40});
  expect_dense(problem, options_of(Loss::kForwardKl, Tail::kBucket, 0.3), "sampled");
  at::Tensor none;
  EXPECT_THROW(
      head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options_of(Loss::kJs, Tail::kBucket), 1, none),
      Error);
}

// Two chunks of rows and all that a result has, against the CPU's code.
TEST(HeadLoss, GpuCodeInChunksIsTheCpus) {
  Problem problem(1300, 16, 150, 8);
  problem.targets.row_weight_T = at::rand({1300});
  HeadLossOptions options = options_of(Loss::kJs, Tail::kBucket, 0.3, 2.0);
  at::Tensor cpu_VD = at::zeros(problem.head_VD.sizes()), gpu_VD = at::zeros(problem.head_VD.sizes());
  const HeadLossResult cpu = head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 0.5, cpu_VD);
  options.gpu_code = true;
  const HeadLossResult gpu = head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 0.5, gpu_VD);
  ASSERT_GT(cpu.num_rows, 1024);
  EXPECT_EQ(cpu.num_rows, gpu.num_rows);
  EXPECT_EQ(cpu.num_teacher_rows, gpu.num_teacher_rows);
  EXPECT_NEAR(gpu.lm, cpu.lm, 1e-6 * cpu.lm);
  EXPECT_NEAR(gpu.distill, cpu.distill, 1e-6 * cpu.distill);
  EXPECT_LT(relative(gpu.hidden_gradient_TD, cpu.hidden_gradient_TD.to(at::kDouble)), 6e-6);
  EXPECT_LT(relative(gpu_VD, cpu_VD.to(at::kDouble)), 6e-6);
  EXPECT_TRUE(at::allclose(gpu.label_logprob_T, cpu.label_logprob_T, 1e-6, 1e-6, /*equal_nan=*/true));
  options.gradient = false;
  at::Tensor none;
  const HeadLossResult plain = head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 0.5, none);
  EXPECT_EQ(plain.loss, gpu.loss);
  EXPECT_FALSE(plain.hidden_gradient_TD.defined());
}

// Several tiles of rows, of the vocabulary and of groups, with a last one that is not full.
TEST(HeadLoss, BitsDoNotDependOnThreads) {
  const Problem problem(517, 56, 10007, 20);
  const HeadLossOptions options = options_of(Loss::kForwardKl, Tail::kBucket, 0.3, 2.0);
  at::Tensor first_VD = at::zeros(problem.head_VD.sizes());
  const HeadLossResult first = head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 1, first_VD);
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    at::Tensor gradient_VD = at::zeros(problem.head_VD.sizes());
    const HeadLossResult again =
        head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 1, gradient_VD, &pool);
    EXPECT_EQ(first.loss, again.loss);
    EXPECT_TRUE(first.hidden_gradient_TD.equal(again.hidden_gradient_TD));
    EXPECT_TRUE(first_VD.equal(gradient_VD));
  }
  // Tiles of 48 rows against tiles of 16.
  HeadLossResult part;
  at::Tensor parts_VD = at::zeros(problem.head_VD.sizes());
  std::vector<at::Tensor> rows;
  double loss = 0;
  for (std::int64_t begin = 0; begin < 517; begin += 100) {
    const std::int64_t n = std::min<std::int64_t>(100, 517 - begin);
    const auto cut = [&](const at::Tensor& all) { return all.narrow(0, begin, n).contiguous(); };
    HeadLossTargets targets{cut(problem.targets.labels_T), cut(problem.targets.teacher_ids_TK),
                            cut(problem.targets.teacher_logprobs_TK), cut(problem.targets.teacher_valid_T)};
    part = head_loss(cut(problem.hidden_TD), problem.head_VD, targets, options, 1, parts_VD);
    loss += part.loss;
    rows.push_back(part.hidden_gradient_TD);
  }
  EXPECT_NEAR(loss, first.loss, 1e-6 * first.loss);
  EXPECT_LT(relative(at::cat(rows), first.hidden_gradient_TD.to(at::kDouble)), 1e-6);
  EXPECT_LT(relative(parts_VD, first_VD.to(at::kDouble)), 3e-6);
}

void expect_no_count(bool gpu_code) {
  Problem problem(20, 16, 200, 4);
  problem.hidden_TD[3].fill_(std::numeric_limits<float>::quiet_NaN());  // row 3 has no label
  at::Tensor gradient_VD = at::zeros(problem.head_VD.sizes());
  HeadLossOptions options = options_of(Loss::kForwardKl, Tail::kBucket, 0.3);
  options.gpu_code = gpu_code;
  const HeadLossResult found = head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 1, gradient_VD);
  EXPECT_TRUE(std::isfinite(found.loss));
  EXPECT_TRUE(at::isfinite(gradient_VD).all().item<bool>());
  EXPECT_EQ(found.num_rows, 17);
  for (const std::int64_t t : {3, 10, 17}) {
    EXPECT_EQ(found.hidden_gradient_TD[t].abs().max().item<float>(), 0.0f);
    EXPECT_TRUE(std::isnan(found.label_logprob_T[t].item<float>()));
  }
  problem.targets.labels_T.fill_(-100);
  const HeadLossResult none = head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 1, gradient_VD);
  EXPECT_EQ(none.loss, 0);
  EXPECT_EQ(none.hidden_gradient_TD.abs().max().item<float>(), 0.0f);
}

TEST(HeadLoss, RowsWithoutLabelCountNothing) {
  expect_no_count(false);
  expect_no_count(true);
}

// One token beside larger ones, and all tokens that one thread of a GPU sees.
TEST(HeadLoss, ALogitOfMinusInfinityGivesNoFiniteLoss) {
  for (const std::int64_t count : {1, 8}) {
    Problem problem(6, 16, 520, 4);
    problem.targets = {.labels_T = at::zeros({6}, at::kLong)};
    problem.hidden_TD.select(1, 0).fill_(1);
    problem.head_VD.select(1, 0).narrow(0, 8, count).fill_(-std::numeric_limits<float>::infinity());
    HeadLossOptions options = options_of(Loss::kForwardKl, Tail::kBucket, 1.0);
    options.distill.weight = 0;
    options.gradient = false;
    at::Tensor none;
    for (options.gpu_code = false;; options.gpu_code = true) {
      const HeadLossResult found = head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 1, none);
      EXPECT_FALSE(std::isfinite(found.loss)) << count << (options.gpu_code ? ", a GPU's code" : "");
      if (options.gpu_code) break;
    }
  }
}

TEST(HeadLoss, PaddingOfTeacherRowsIsNothing) {
  const Problem problem(20, 16, 200, 4);
  Problem padded = problem;
  const float none = -std::numeric_limits<float>::infinity();
  padded.targets.teacher_ids_TK =
      at::cat({at::full({20, 1}, -1, at::kInt), problem.targets.teacher_ids_TK, at::full({20, 1}, 7, at::kInt)}, 1);
  padded.targets.teacher_logprobs_TK =
      at::cat({at::full({20, 1}, std::nanf("")), problem.targets.teacher_logprobs_TK, at::full({20, 1}, none)}, 1);
  for (const auto& [loss, gpu_code] :
       {std::pair(Loss::kForwardKl, false), {Loss::kReverseKl, false}, {Loss::kJs, false}, {Loss::kReverseKl, true}}) {
    at::Tensor frozen;
    HeadLossOptions options = options_of(loss, Tail::kBucket);
    options.gpu_code = gpu_code;
    const HeadLossResult a = head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 1, frozen);
    const HeadLossResult b = head_loss(padded.hidden_TD, padded.head_VD, padded.targets, options, 1, frozen);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_TRUE(a.hidden_gradient_TD.equal(b.hidden_gradient_TD));
    EXPECT_TRUE(at::isfinite(a.hidden_gradient_TD).all().item<bool>());
  }
}

TEST(HeadLoss, RefusesTokensOutsideTheVocabulary) {
  at::Tensor frozen;
  HeadLossOptions options = options_of(Loss::kForwardKl, Tail::kBucket);
  const auto code = [&](const Problem& problem) {
    try {
      head_loss(problem.hidden_TD, problem.head_VD, problem.targets, options, 1, frozen);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kDone;
  };
  Problem label(8, 16, 200, 4), teacher(8, 16, 200, 4);
  label.targets.labels_T[2] = 200;
  teacher.targets.teacher_ids_TK[2][1] = 200;
  for (const bool gpu_code : {false, true}) {
    options.gpu_code = gpu_code;
    EXPECT_EQ(code(label), ExitCode::kData);
    EXPECT_EQ(code(teacher), ExitCode::kData);
  }
}

TEST(HeadLoss, WorkMemoryIsAFractionOfTheLogits) {
  for (const auto& [rows, limit] : {std::pair(2048, 0.035), std::pair(8192, 0.02), std::pair(512, 0.13)}) {
    const double logits = 4.0 * static_cast<double>(rows) * 49152;
    EXPECT_LT(static_cast<double>(head_loss_bytes(rows, 576, 49152, 2)) / logits, limit) << rows;
  }
}

// Memory of this process in bytes: VmRSS or VmHWM.
double memory_of_process(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return 1024.0 * std::stod(line.substr(key.size() + 1));
  }
  return 0;
}

// The memory that the kernel measured against the plan: SmolLM2's head over as many rows as a step of
// tests/bench/train_table.py has.
TEST(HeadLoss, TheProcessTakesNoMoreThanThat) {
  constexpr std::int64_t kRows = 1024, kWidth = 576, kVocabulary = 49152;
  at::manual_seed(2);
  const at::Tensor hidden_TD = at::randn({kRows, kWidth}), head_VD = at::randn({kVocabulary, kWidth}) * 0.05;
  at::Tensor gradient_VD = at::zeros({kVocabulary, kWidth});
  HeadLossTargets targets;
  targets.labels_T = at::randint(0, kVocabulary, {kRows}, at::kLong);
  const auto extra = [&] {
    ::malloc_trim(0);  // memory that earlier tests have left would be taken without being seen
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
    const double before = memory_of_process("VmHWM:");
    EXPECT_NEAR(before, memory_of_process("VmRSS:"), 4e6) << "the peak was not reset";
    const HeadLossResult result = head_loss(hidden_TD, head_VD, targets, {}, 1.0, gradient_VD);
    EXPECT_TRUE(std::isfinite(result.loss));
    return memory_of_process("VmHWM:") - before;
  };
  const double logits = 4.0 * kRows * kVocabulary, first = extra(),
               planned = head_loss_bytes(kRows, kWidth, kVocabulary, 1);
  std::printf("work memory of head and loss: %.4f of rows x V x 4 bytes, planned %.4f\n", first / logits,
              planned / logits);
  EXPECT_GT(first, 0.9 * planned) << "the measurement misses memory";
  EXPECT_LT(first / logits, 0.125);
  EXPECT_LT(first, 1.25 * planned + 8e6) << "8 MB: hidden states' gradient, and the library's first call";
}

}  // namespace head_loss_test
}  // namespace magister
