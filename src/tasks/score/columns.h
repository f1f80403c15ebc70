// Columns of the results of a score task, and the rules that `check` tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"

namespace magister {

// N samples; all are [N], kValue of a classifier with several labels [N, labels].
namespace score_column {
inline constexpr Column<float> kValue{"/score/value"};  // score_columns() and verifier_columns() have its comment
inline constexpr Column<std::int32_t> kAnswerClass{
    "/score/answer_class",
    "number of the record's first completion whose answer counts as the same; -1: none was found"};
inline constexpr Column<std::uint8_t> kUnread{"/score/unread"};  // numbers of Unread; comment: unread_comment()
inline constexpr Column<std::uint32_t> kNumTokens{"/score/num_tokens", "of the completion", "tokens"};
inline constexpr Column<float> kGuideKl{"/score/guide_kl",
                                        "KL(guided || reference) of the completion, the sum over its tokens", "nats"};
inline constexpr Column<float> kFlops{
    "/score/flops", "of the products that wrote the completion, its share of the prompt's included", "FLOP"};
}  // namespace score_column

// num_labels: number of labels of the model; /score/value has them in order.
std::vector<ColumnSpec> score_columns(std::uint64_t num_samples, std::uint64_t num_tokens, std::uint64_t key_bytes,
                                      std::size_t num_labels);

// Columns of a verifier. classes: it extracts answers; unread: it reports texts that it did not compare.
std::vector<ColumnSpec> verifier_columns(std::uint64_t num_samples, std::uint64_t key_bytes, bool classes, bool unread);

// Columns for texts of a generate task, in addition to one of the two above. kl: the texts were guided; flops: their
// cost is known.
std::vector<ColumnSpec> answer_columns(std::uint64_t num_samples, bool kl, bool flops);

extern const ResultsSchema kScoreSchema;

}  // namespace magister
