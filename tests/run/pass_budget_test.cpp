// The line through two peaks of memory.
#include "magister/run/pass_budget.h"

#include <gtest/gtest.h>

namespace magister {
namespace {

TEST(PassBudget, TokensThatTheMemoryHolds) {
  // 100 bytes per token and 5000 once.
  EXPECT_EQ(token_budget_of(1000, 105000, 2000, 205000, 1'005'000), 10'000);
  // Less than the smaller pass, which has been run: that much there is.
  EXPECT_EQ(token_budget_of(1000, 105000, 2000, 205000, 50'000), 1000);
  // Equal peaks (all in the tile of logits): tokens cost next to nothing.
  EXPECT_GT(token_budget_of(1000, 5000, 2000, 5000, 1'000'000), 100'000);
}

}  // namespace
}  // namespace magister
