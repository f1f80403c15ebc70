// Columns of a results file of teacher logits, and the bytes of a unit for them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"
#include "magister/model/batch.h"
#include "magister/run/unit_writer.h"
#include "tasks/teacher_logits/encoding.h"

namespace magister {

// T tokens: numbers [T], entries [T, k], packed ids as encoding.h says.
namespace teacher_column {
inline constexpr ColumnSpec::Extent kRows = ColumnSpec::Extent::kRows;
inline constexpr const char* kEntries =
    "the most probable next tokens, best first; ties: lower id first. Row i is the distribution of token i+1 given "
    "tokens up to i";
inline constexpr Column<std::int32_t> kTopId{"/teacher/top_id", kEntries, "", kRows};
inline constexpr Column<std::uint8_t> kTopIdPacked{"/teacher/top_id_packed", "", "", kRows};
inline constexpr Column<std::uint8_t> kTailIdPacked{"/teacher/tail_id_packed", "", "", kRows};
// f16 in packed encodings and where the config asks for it.
inline constexpr Column<float> kTopLogprob{
    "/teacher/top_logprob",
    "their log-probabilities: log-softmax over the whole vocabulary, never renormalised over the kept entries", "nat",
    kRows};
inline constexpr Column<float> kLogsumexp{"/teacher/logsumexp",
                                          "log-sum-exp of the raw logits: logit = logprob + logsumexp", "nat", kRows};
inline constexpr Column<float> kTargetLogprob{
    "/teacher/target_logprob", "log-probability of the token that follows; NaN in a sample's last row", "nat", kRows};
inline constexpr Column<float> kEntropy{"/teacher/entropy", "entropy of the whole distribution", "nat", kRows};
inline constexpr Column<float> kTailMass{"/teacher/tail_mass", "1 - the probability mass of the kept entries", "",
                                         kRows};
}  // namespace teacher_column

class ThreadPool;

// Sizes and types of the columns. key_bytes: width of /samples/key; half: log-probabilities are f16, as in packed
// encodings.
struct TeacherShape {
  std::uint64_t num_samples = 0, num_tokens = 0, key_bytes = 1;
  TeacherEncoding encoding{};
  bool half = false;
  bool marked = false;  // /tokens/assistant marks the tokens of the assistant; only rows before them are scored
};

std::vector<ColumnSpec> teacher_columns(const TeacherShape& shape);

// Converts the rows of a unit for the file. draws_Td: i32, defined only for sampled rows. scored_T: 1 for rows that
// hold numbers; empty: all do. The threads of pool share the rows; the bytes do not depend on them. Packed rows are
// unpacked again and must keep the error that the file's attribute `encoding_error` promises. Throws Error(kInternal)
// if a row breaks these rules: row i is the distribution of token i+1, so if token i+1 is among the kept entries of row
// i, its log-probability equals target_logprob; target_logprob is NaN in the last row of each sample and in no other
// row. Throws Error(kData) if a scored row is not finite.
std::vector<ColumnBytes> teacher_rows(const ReducedLogits& logits, const PackedBatch& batch,
                                      std::span<const std::uint8_t> scored_T, const TeacherEncoding& encoding,
                                      bool half, const at::Tensor& draws_Td = {}, ThreadPool* pool = nullptr);

// The first scored row with logits that are not finite; -1: none.
std::int64_t first_row_not_finite(const ReducedLogits& logits, std::span<const std::uint8_t> scored_T);

// The rows of consecutive parts, joined.
ReducedLogits joined(const std::vector<ReducedLogits>& parts);

// The rows first, ..., first + count - 1.
ReducedLogits narrowed(const ReducedLogits& rows, std::int64_t first, std::int64_t count);

// Places row i of logits at row rows[i] of T rows; the other rows are empty: ids -1, numbers NaN. The second function
// fills them with `empty`.
ReducedLogits scattered(const ReducedLogits& logits, const std::vector<std::int64_t>& rows, std::int64_t T);
at::Tensor scattered(const at::Tensor& values, const std::vector<std::int64_t>& rows, std::int64_t T,
                     const at::Scalar& empty);

// The rules that `check` tests.
extern const ResultsSchema kTeacherLogitsSchema;

}  // namespace magister
