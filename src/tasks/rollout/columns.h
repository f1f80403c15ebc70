// The datasets of rollouts; all have one row per record. rollouts_file.cpp makes, checks and reads them.
#pragma once

#include <cstdint>

#include "magister/core/types.h"
#include "magister/io/results/results_file.h"

namespace magister {

// N records with C cuts, n continuations behind each, of at most S tokens: [N], by cut [N, C], by continuation
// [N, C n], tokens [N, S] and [N, C n S].
namespace rollout_column {
inline constexpr Column<TokenId> kRollInId{"/rollout/roll_in_id", "tokens of the text that is cut"};
inline constexpr Column<std::uint32_t> kRollInLength{"/rollout/roll_in_length", "used slots of roll_in_id", "tokens"};
inline constexpr Column<std::uint32_t> kCut{"/rollout/cut", "tokens of the roll-in that stay before each cut",
                                            "tokens"};
inline constexpr Column<TokenId> kId{"/rollout/id",
                                     "tokens of the continuations behind the cuts, cut by cut, each in its slots"};
inline constexpr Column<std::uint32_t> kLength{"/rollout/length", "used slots of each continuation", "tokens"};
inline constexpr Column<std::uint8_t> kFinishReason{"/rollout/finish_reason",
                                                    "0: an end token or a stop text; 1: max_new_tokens"};
inline constexpr Column<float> kReward{"/rollout/reward", "of the whole text: roll-in up to the cut, and continuation"};
inline constexpr Column<std::uint8_t> kPreferred{
    "/rollout/preferred", "continuations 2i and 2i + 1 of a cut were compared: 1 won, 0 lost; 2: had no other"};
inline constexpr Column<std::uint8_t> kUnread{"/rollout/unread"};  // numbers of Unread; comment: unread_comment()
inline constexpr Column<float> kMeanReward{"/rollout/mean_reward", "mean over the record's continuations"};
}  // namespace rollout_column

}  // namespace magister
