// What is written of a unit: a shift by one row, a misplaced NaN and logits that are not finite must all be refused.
#include "tasks/teacher_columns.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "magister/core/error.h"
#include "magister/engine/logit_reducer.h"
#include "magister/model/transformer.h"

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
  const auto columns = teacher_rows(logits_, batch_, false);
  ASSERT_EQ(columns.size(), 6u);
  EXPECT_EQ(columns[0].bytes.size(), 9u * 50 * 4);
  EXPECT_EQ(teacher_rows(logits_, batch_, true)[1].bytes.size(), 9u * 50 * 2);
}

TEST_F(Rows, AShiftByOneRowIsRefused) {
  logits_.top_logprob_Tk = logits_.top_logprob_Tk.roll(1, 0).contiguous();
  logits_.top_id_Tk = logits_.top_id_Tk.roll(1, 0).contiguous();
  EXPECT_THROW(teacher_rows(logits_, batch_, false), Error);
}

TEST_F(Rows, ShiftedTargetsAreRefused) {
  logits_.target_logprob_T = logits_.target_logprob_T.roll(1, 0).contiguous();
  EXPECT_THROW(teacher_rows(logits_, batch_, false), Error);
}

TEST_F(Rows, LogitsThatAreNotFiniteAreRefused) {
  logits_.logsumexp_T[2] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(teacher_rows(logits_, batch_, false), Error);
}

}  // namespace
}  // namespace magister
