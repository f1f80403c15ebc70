// The datasets of a teacher-logits results file, and the bytes of one unit for them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"
#include "magister/io/results/teacher_encoding.h"
#include "magister/model/batch.h"
#include "magister/run/unit_writer.h"

namespace magister {

class ThreadPool;

// n samples, T tokens; key_bytes: width of /samples/key; half: log-probabilities as f16, as packed encodings have them.
struct TeacherShape {
  std::uint64_t num_samples = 0, num_tokens = 0, key_bytes = 1;
  TeacherEncoding encoding{};
  bool half = false;
  bool marked =
      false;  // /tokens/assistant says which tokens a chat's assistant wrote; only rows before such a token are scored
};

std::vector<ColumnSpec> teacher_columns(const TeacherShape& shape);

// The unit's rows, converted for the file. draws_Td: i32, of sampled rows alone, else undefined. What is packed is unpacked again and held
// to the error that the file's attribute `encoding_error` promises. Throws Error(kInternal) when a row breaks the rule that the writer must keep:
// row i is the distribution of token i+1, so where token i+1 stands among the kept entries of row i, its
// log-probability must equal target_logprob; NaN stands in the last row of each sample and nowhere else. Throws Error(kData) when
// a scored row is not finite. scored_T: 1 for the rows that hold numbers; empty: all. The pool's threads share the rows; the bytes are the same.
std::vector<ColumnBytes> teacher_rows(const ReducedLogits& logits, const PackedBatch& batch,
                                      std::span<const std::uint8_t> scored_T, const TeacherEncoding& encoding,
                                      bool half, const at::Tensor& draws_Td = {}, ThreadPool* pool = nullptr);

// The first scored row whose logits were not finite; -1: none.
std::int64_t first_row_not_finite(const ReducedLogits& logits, std::span<const std::uint8_t> scored_T);

// Rows of parts of a unit, one after the other.
ReducedLogits joined(const std::vector<ReducedLogits>& parts);

// `count` rows from `first` on.
ReducedLogits narrowed(const ReducedLogits& rows, std::int64_t first, std::int64_t count);

// The reduced rows `rows` of a unit of T rows, at their places; the others are empty: ids -1, numbers NaN.
ReducedLogits scattered(const ReducedLogits& logits, const std::vector<std::int64_t>& rows, std::int64_t T);
at::Tensor scattered(const at::Tensor& values, const std::vector<std::int64_t>& rows, std::int64_t T,
                     const at::Scalar& empty);

// What `check` demands of them.
extern const ResultsSchema kTeacherLogitsSchema;

}  // namespace magister
