// The rows written for a unit: a shift by one row, a misplaced NaN and logits that are not finite must all be refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "magister/core/error.h"
#include "magister/engine/logit_reducer.h"
#include "magister/model/transformer.h"
#include "magister/parallel/thread_pool.h"
#include "tasks/teacher_logits/columns.h"

namespace magister {
namespace teacher_columns_test {

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

// Many tiles, by threads, in every encoding: ids and numbers as ATen converts them, whole rows in place.
TEST(ManyRows, BytesAreThoseOfThePlainConversion) {
  constexpr std::int64_t kRows = 1000, kKept = 13;
  at::manual_seed(3);
  const LmHead head{{at::randn({60, 8}), {}}, {0, 60}, 60};
  std::vector<std::vector<TokenId>> texts(4, std::vector<TokenId>(kRows / 4, 5));
  const PackedBatch batch = pack_sequences(texts);
  std::vector<TokenId> targets(kRows, 5);
  for (std::size_t t = kRows / 4 - 1; t < kRows; t += kRows / 4) targets[t] = -1;
  const ReducedLogits logits = LogitReducer::reduce_reference(head, at::randn({kRows, 8}), targets, kKept);
  const at::Tensor draws_Td = at::randint(0, 60, {kRows, 3}, at::kInt);
  const auto holds = [](const ColumnBytes& column, const at::Tensor& numbers) {
    return column.bytes.size() == numbers.nbytes() &&
           std::memcmp(column.bytes.data(), numbers.const_data_ptr(), numbers.nbytes()) == 0;
  };
  const auto packed = [](const ColumnBytes& column, const at::Tensor& ids_TK) {
    const auto width = static_cast<std::size_t>(ids_TK.size(1)), bytes = packed_bytes(width, 6);
    std::vector<std::byte> row(bytes);
    bool equal = column.bytes.size() == kRows * bytes;
    for (std::size_t t = 0; equal && t < kRows; ++t) {
      pack_ids({ids_TK.const_data_ptr<std::int32_t>() + t * width, width}, 6, row);
      equal = std::equal(row.begin(), row.end(), column.bytes.begin() + static_cast<std::ptrdiff_t>(t * bytes));
    }
    return equal;
  };
  ThreadPool threads(3);
  for (ThreadPool* const pool : {static_cast<ThreadPool*>(nullptr), &threads}) {
    const auto plain = teacher_rows(logits, batch, {}, {}, false, {}, pool);
    EXPECT_TRUE(holds(plain[0], logits.top_id_Tk) && holds(plain[1], logits.top_logprob_Tk));
    EXPECT_TRUE(holds(plain[3], logits.target_logprob_T) && holds(plain[5], logits.tail_mass_T));
    EXPECT_TRUE(holds(teacher_rows(logits, batch, {}, {}, true, {}, pool)[1], logits.top_logprob_Tk.to(at::kHalf)));
    const TeacherEncoding sampled{TeacherEncoding::Kind::kSampled, kKept, 3, 6};
    const auto columns = teacher_rows(logits, batch, {}, sampled, true, draws_Td, pool);
    ASSERT_EQ(columns.size(), 7u);
    EXPECT_TRUE(packed(columns[0], logits.top_id_Tk) && packed(columns[6], draws_Td));
    EXPECT_TRUE(holds(columns[1], logits.top_logprob_Tk.to(at::kHalf)));
  }
}

TEST_F(Rows, WhatHalvesOrBitsDoNotHoldIsRefused) {
  const auto code_of = [&](const TeacherEncoding& encoding, bool half) {
    try {
      teacher_rows(logits_, batch_, {}, encoding, half);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kDone;
  };
  const TeacherEncoding compact{TeacherEncoding::Kind::kCompact, 50, 0, 6},
      too_narrow{TeacherEncoding::Kind::kCompact, 50, 0, 5};
  EXPECT_EQ(code_of(compact, true), ExitCode::kDone);
  EXPECT_EQ(code_of(too_narrow, true), ExitCode::kInternal);
  logits_.top_logprob_Tk[4][49] = -std::numeric_limits<float>::infinity();  // a token that is impossible stays so
  EXPECT_EQ(code_of(compact, true), ExitCode::kDone);
  logits_.top_logprob_Tk[8][49] = -65500.0f;
  EXPECT_EQ(code_of(compact, true), ExitCode::kDone);
  logits_.top_logprob_Tk[8][49] = -66000.0f;
  EXPECT_EQ(code_of(compact, true), ExitCode::kData);
  EXPECT_EQ(code_of({}, true), ExitCode::kData);
  EXPECT_EQ(code_of({}, false), ExitCode::kDone);
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

// A row of NaN has no candidate, like a row that is not scored: only the mask distinguishes them.
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

}  // namespace teacher_columns_test
}  // namespace magister
