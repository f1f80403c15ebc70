// What is written of a unit: a shift by one row, a misplaced NaN and logits that are not finite must all be refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "magister/core/error.h"
#include "magister/engine/logit_reducer.h"
#include "magister/model/transformer.h"
#include "tasks/teacher_logits/columns.h"

namespace magister {
namespace {

class Rows : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(11);
    head_ = {{at::randn({50, 8}), {}}, {0, 50}, 50};
    batch_ = pack_sequences({{3, 14, 15, 9, 2}, {}, {6}, {5, 35, 8}});
    for (std::int64_t t = 0; t < 9; ++t) {
      const bool last = t == 4 || t == 5 || t == 8;
      targets_.push_back(last ? -1 : batch_.token_ids_T[t + 1].item<int>());
    }
    logits_ = LogitReducer::reduce_reference(head_, at::randn({9, 8}), targets_, 50);
  }
  LmHead head_;
  PackedBatch batch_;
  std::vector<TokenId> targets_;
  ReducedLogits logits_;
};

TEST_F(Rows, GoodRowsAreTaken) {
  const auto columns = teacher_rows(logits_, batch_, {}, {}, false);
  ASSERT_EQ(columns.size(), 6u);
  EXPECT_EQ(columns[0].bytes.size(), 9u * 50 * 4);
  EXPECT_EQ(teacher_rows(logits_, batch_, {}, {}, true)[1].bytes.size(), 9u * 50 * 2);
}

TEST_F(Rows, AShiftByOneRowIsRefused) {
  logits_.top_logprob_Tk = logits_.top_logprob_Tk.roll(1, 0).contiguous();
  logits_.top_id_Tk = logits_.top_id_Tk.roll(1, 0).contiguous();
  EXPECT_THROW(teacher_rows(logits_, batch_, {}, {}, false), Error);
}

TEST_F(Rows, ShiftedTargetsAreRefused) {
  logits_.target_logprob_T = logits_.target_logprob_T.roll(1, 0).contiguous();
  EXPECT_THROW(teacher_rows(logits_, batch_, {}, {}, false), Error);
}

TEST_F(Rows, LogitsThatAreNotFiniteAreRefused) {
  logits_.logsumexp_T[2] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(teacher_rows(logits_, batch_, {}, {}, false), Error);
}

// A row of NaN has no candidate, as a row that is not scored: only the mask tells them apart.
TEST_F(Rows, ARowOfNaNIsRefusedWhereItIsScored) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t row : {0, 4, 8}) {  // 4 and 8: last rows of samples, which have no target
    ReducedLogits logits = logits_;
    for (at::Tensor* column : {&logits.logsumexp_T, &logits.entropy_T, &logits.tail_mass_T, &logits.target_logprob_T}) {
      *column = column->clone();
      (*column)[row] = nan;
    }
    logits.top_id_Tk = logits.top_id_Tk.clone();
    logits.top_logprob_Tk = logits.top_logprob_Tk.clone();
    logits.top_id_Tk[row] = -1;
    logits.top_logprob_Tk[row] = nan;
    EXPECT_EQ(first_row_not_finite(logits, {}), row);
    EXPECT_THROW(teacher_rows(logits, batch_, {}, {}, false), Error);
    std::vector<std::uint8_t> scored(9, 1);
    EXPECT_THROW(teacher_rows(logits, batch_, scored, {}, false), Error);
    scored[static_cast<std::size_t>(row)] = 0;
    EXPECT_EQ(teacher_rows(logits, batch_, scored, {}, false).size(), 6u);
  }
}

TEST_F(Rows, AnEntropyOfNaNAndAMissingBestTokenAreRefused) {
  ReducedLogits logits = logits_;
  logits.entropy_T = logits.entropy_T.clone();
  logits.entropy_T[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(teacher_rows(logits, batch_, {}, {}, false), Error);
  logits_.top_id_Tk[5][0] = -1;
  EXPECT_EQ(first_row_not_finite(logits_, {}), 5);
}

}  // namespace
}  // namespace magister
