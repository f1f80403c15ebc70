// The line through two peaks of memory; and the positions that a model has.
#include "magister/tasks/teacher_logits/pass_budget.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "magister/core/error.h"
#include "magister/run/generator_shard.h"
#include "magister/runtime/pass_shape.h"
#include "magister/runtime/rope_length.h"

namespace magister {
namespace pass_budget_test {

TEST(PassBudget, TokensThatTheMemoryHolds) {
  // 100 bytes per token and 5000 once.
  EXPECT_EQ(token_budget_of(1000, 105000, 2000, 205000, 1'005'000), 10'000);
  // Less than the smaller pass, which has been run: that much there is.
  EXPECT_EQ(token_budget_of(1000, 105000, 2000, 205000, 50'000), 1000);
  // Equal peaks (all in the tile of logits): tokens cost next to nothing.
  EXPECT_GT(token_budget_of(1000, 5000, 2000, 5000, 1'000'000), 100'000);
}

// An 8B model in 20 GB: the layers take 119 KB per token plus 0.9 GB once, not the few KB per token that remain visible
// next to a tile of logits.
TEST(PassBudget, LayersAreWhatTokensCost) {
  const auto peak = [](std::int64_t tokens) { return 900'000'000u + 119'000u * static_cast<std::uint64_t>(tokens); };
  EXPECT_EQ(token_budget_of(2048, peak(2048), 4096, peak(4096), 20'000'000'000), 160'504);
}

// Hidden states and kept numbers of two passes, in addition to a tile of logits.
TEST(PassBudget, TokensOfTheHead) {
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  const LmHead head{{at::zeros({1000, 64}), {}}, {0, 1000}, 1000, gpu::Queue{}};
  const LogitReducer reducer(head, *group, pool, 20);
  EXPECT_EQ(reducer.bytes_of_row(), (4 + 20 + 16) * 8u);
  const std::uint64_t tile = kLogitRows * 1000 * 4, a_token = 2 * (64 * 4 + 40 * 8);
  EXPECT_EQ(tokens_of_head(64, reducer, tile + 77 * a_token), 77);
  EXPECT_EQ(tokens_of_head(64, reducer, 5), 0);
}

TEST(PassLimits, WhatIsNotSaidIsTheDevicesThenTheTasks) {
  const auto of = [](const PassLimits& asked, const PassLimits& device) {
    const PassLimits limits = asked.or_else(device).or_else({32, 512});
    return std::pair(limits.sequences, limits.tokens);
  };
  using Limits = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(of({0, 0}, {}), Limits(32, 512));
  EXPECT_EQ(of({0, 0}, kGpuPassLimits), Limits(256, 8192));
  EXPECT_EQ(of({7, 0}, kGpuPassLimits), Limits(7, 8192));
  EXPECT_EQ(of({0, 9}, {}), Limits(32, 9));
}

// Refused when a job is opened, not at the first long record.
TEST(Positions, EndWhereTheModelOrItsRotaryFrequenciesDo) {
  ModelConfig model;
  model.max_position_embeddings = 96;
  EXPECT_NO_THROW(check_positions(model, "x.yaml:1:1: max_prompt_length", 90, 6));
  EXPECT_THROW(check_positions(model, "x.yaml:1:1: max_prompt_length", 90, 7), Error);
  model.rope.kind = RopeConfig::Kind::kLongRope;
  model.rope.original_max_position_embeddings = 24;
  fix_rope_length(model, 24);
  EXPECT_NO_THROW(check_positions(model, "x.yaml:1:1: max_prompt_length", 20, 4));
  try {
    check_positions(model, "x.yaml:1:1: max_prompt_length", 20, 5);
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("are for 24 positions"), std::string::npos) << error.what();
  }
}

}  // namespace pass_budget_test
}  // namespace magister
