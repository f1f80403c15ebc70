// The tokens of one sample, from reading a record until the plan.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "magister/core/types.h"

namespace magister {

// assistant: 1 for each token that the assistant of a chat wrote, else 0; empty: not requested.
struct SampleTokens {
  SampleTokens(std::vector<TokenId> tokens) : ids(std::move(tokens)) {}
  SampleTokens(std::vector<TokenId> tokens, std::vector<std::uint8_t> marks)
      : ids(std::move(tokens)), assistant(std::move(marks)) {}
  std::vector<TokenId> ids;
  std::vector<std::uint8_t> assistant;
  std::uint32_t turns_left_out = 0;  // turns of the assistant whose tokens are not marked
};

}  // namespace magister
