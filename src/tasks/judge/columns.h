// The datasets of a judge's results: one sample per judged prompt. check.cpp has the rules that `check` applies.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"

namespace magister {

// N samples, C verdicts: all are [N], kClassLogprob is [N, C] and kReplyId [N, reply_tokens].
namespace judge_column {
inline constexpr Column<std::int32_t> kVerdict{
    "/judge/verdict", "number of the most probable verdict; names: root attribute verdicts; -1: none, or several"};
inline constexpr Column<float> kProbability{"/judge/probability", "of that verdict among all verdicts"};
inline constexpr Column<float> kLogOdds{"/judge/log_odds", "of the first verdict against all others", "nat"};
inline constexpr Column<float> kMargin{"/judge/margin", "the best verdict over the second", "nat"};
inline constexpr Column<float> kMass{"/judge/mass", "probability of all verdicts together in the whole distribution"};
inline constexpr Column<float> kExpected{
    "/judge/expected", "sum of (number + 1) * probability among the verdicts: the expected score of a rubric"};
inline constexpr Column<float> kClassLogprob{"/judge/class_logprob", "of each verdict in the whole distribution",
                                             "nat"};
inline constexpr Column<std::uint8_t> kParse{
    "/judge/parse",
    "0: ok; 1: low_mass, the model wanted to write something else; 2: unparsed, its reply holds no verdict; 3: "
    "truncated, its reply was cut off; 4: tie, several verdicts are the most probable ones"};
inline constexpr Column<std::uint8_t> kOrder{"/judge/order", "of a pair: 0 as given, 1 with the answers exchanged"};
inline constexpr Column<std::uint8_t> kPrompt{"/judge/prompt", "number of the prompt that judged"};
inline constexpr Column<std::int32_t> kCombined{
    "/judge/combined", "verdict of all prompts, orders and judges on this text (a pair: as given); -1: undecided"};
inline constexpr Column<float> kCombinedProbability{"/judge/combined_probability",
                                                    "of it: among the verdicts, or its share of the votes"};
inline constexpr Column<TokenId> kReplyId{"/judge/reply_id", "tokens of the judge's reply, -1 behind its end"};
// Packing adds these:
inline constexpr Column<std::string> kPromptText{"/judge/prompt_text",
                                                 "/tokens as text, special tokens included; U+FFFD stands for U+0000"};
inline constexpr Column<std::string> kReply{"/judge/reply", "reply_id as text, without special tokens"};
}  // namespace judge_column

// n samples with T prompt tokens in total; C verdicts; replies of at most reply_tokens (0: no replies).
struct JudgeShape {
  std::uint64_t num_samples = 0, num_tokens = 0, classes = 2, key_bytes = 1, reply_tokens = 0;
};

std::vector<ColumnSpec> judge_columns(const JudgeShape& shape);

// The rules that `check` applies to verdicts.
extern const ResultsSchema kJudgeSchema;

}  // namespace magister
