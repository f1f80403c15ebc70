// The tokens of one sample, on their way from a record to the plan.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "magister/core/types.h"

namespace magister {

// assistant: for each 1 where the assistant of a chat wrote it, else 0; empty: not asked.
struct SampleTokens {
  SampleTokens(std::vector<TokenId> tokens) : ids(std::move(tokens)) {}
  SampleTokens(std::vector<TokenId> tokens, std::vector<std::uint8_t> marks)
      : ids(std::move(tokens)), assistant(std::move(marks)) {}
  std::vector<TokenId> ids;
  std::vector<std::uint8_t> assistant;
  std::uint32_t turns_left_out = 0;  // of the assistant, whose tokens are not marked though it wrote them
};

}  // namespace magister
