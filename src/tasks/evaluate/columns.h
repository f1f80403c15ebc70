// The datasets of an evaluation's results, and the rules that `check` applies to them.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"

namespace magister {

// N records, M methods: all are [N, M], except those with a number for each count of pass_at or majority_at of each
// method.
namespace evaluate_column {
inline constexpr Column<std::uint8_t> kCorrect{"/evaluate/correct",
                                               "1: the record's first text is right, by method (attribute `methods`)"};
inline constexpr Column<float> kPassAt{
    "/evaluate/pass_at",
    "that one of k texts is right, unbiased, for each k of the attribute `pass_at` of each method"};
inline constexpr Column<float> kMajorityAt{
    "/evaluate/majority_at",
    "that most of k texts elect a right answer, in the mean over all choices of k, for each k of the attribute "
    "`majority_at` of each method"};
inline constexpr Column<float> kNumTokens{
    "/evaluate/num_tokens", "mean of the record's texts, by method; -1: the texts are the data set's own", "tokens"};
inline constexpr Column<float> kGuideKl{
    "/evaluate/guide_kl",
    "KL(guided || reference) of a text, mean of the record's, by method; -1: they were not guided", "nats"};
inline constexpr Column<float> kFlops{
    "/evaluate/flops", "of the products that wrote a text, mean of the record's, by method; -1: not known", "FLOP"};
// [N, M kNumUnread]; evaluate_columns() has its comment.
inline constexpr Column<std::uint32_t> kUnread{"/evaluate/unread", "", "texts"};
}  // namespace evaluate_column

// n records. A row has one element per method; pass_at and majority_at have one per count of each method. unread: a
// method reports texts that it did not compare.
std::vector<ColumnSpec> evaluate_columns(std::uint64_t num_records, std::uint64_t key_bytes, std::size_t num_methods,
                                         std::size_t num_pass, std::size_t num_majority, bool unread);

extern const ResultsSchema kEvaluateSchema;

}  // namespace magister
