// See columns.h: the columns, and functions for the rows of parts of a unit.
#include "tasks/teacher_logits/columns.h"

#include <ATen/ATen.h>

#include <limits>

#include "magister/core/error.h"
#include "magister/run/unit_samples.h"

namespace magister {

std::vector<ColumnSpec> teacher_columns(const TeacherShape& shape) {
  using namespace teacher_column;
  const std::uint64_t n = shape.num_samples, T = shape.num_tokens, k = shape.encoding.top_k;
  std::vector<ColumnSpec> columns =
      sample_columns(n, T, shape.key_bytes, "rows of sample i are offset[i] .. offset[i+1] of /tokens and /teacher",
                     "the tokens as the model saw them");
  const TeacherEncoding& encoding = shape.encoding;
  if (encoding.is_packed()) {
    columns.push_back(
        kTopIdPacked.spec(T, packed_bytes(k, encoding.bits),
                          fmt::format("{}. {} ids of {} bits, the lowest bit first", kEntries, k, encoding.bits)));
  } else {
    columns.push_back(kTopId.spec(T, k));
  }
  columns.push_back(kTopLogprob.spec(T, k));
  if (shape.half) columns.back().type = ColumnType::kF16;
  columns.insert(columns.end(), {kLogsumexp.spec(T), kTargetLogprob.spec(T), kEntropy.spec(T), kTailMass.spec(T)});
  if (encoding.kind == TeacherEncoding::Kind::kSampled) {
    columns.push_back(kTailIdPacked.spec(
        T, packed_bytes(encoding.draws, encoding.bits),
        fmt::format("an unbiased sample of the tokens that are not kept, ascending; each draw stands for tail_mass / "
                    "{}. {} ids of {} bits, the lowest bit first",
                    encoding.draws, encoding.draws, encoding.bits)));
  }
  if (shape.marked) {
    columns.push_back({"/tokens/assistant", ColumnType::kU8, T, 0,
                       "1: written by the assistant of the chat. Only rows before such a token are scored; the others "
                       "hold -1 and NaN",
                       "", kRows});
  }
  return columns;
}

ReducedLogits joined(const std::vector<ReducedLogits>& parts) {
  if (parts.size() == 1) return parts.front();
  const auto of_all = [&](at::Tensor ReducedLogits::* column) {
    std::vector<at::Tensor> tensors;
    tensors.reserve(parts.size());
    for (const ReducedLogits& part : parts) tensors.push_back(part.*column);
    return at::cat(tensors, 0);
  };
  return {of_all(&ReducedLogits::top_id_Tk),   of_all(&ReducedLogits::top_logprob_Tk),
          of_all(&ReducedLogits::logsumexp_T), of_all(&ReducedLogits::target_logprob_T),
          of_all(&ReducedLogits::entropy_T),   of_all(&ReducedLogits::tail_mass_T)};
}

ReducedLogits narrowed(const ReducedLogits& rows, std::int64_t first, std::int64_t count) {
  const auto part = [&](const at::Tensor& column) { return column.narrow(0, first, count); };
  return {part(rows.top_id_Tk),        part(rows.top_logprob_Tk), part(rows.logsumexp_T),
          part(rows.target_logprob_T), part(rows.entropy_T),      part(rows.tail_mass_T)};
}

at::Tensor scattered(const at::Tensor& values, const std::vector<std::int64_t>& rows, std::int64_t T,
                     const at::Scalar& empty) {
  std::vector<std::int64_t> shape = values.sizes().vec();
  shape[0] = T;
  return at::full(shape, empty, values.options()).index_copy_(0, at::tensor(rows, at::kLong), values);
}

ReducedLogits scattered(const ReducedLogits& logits, const std::vector<std::int64_t>& rows, std::int64_t T) {
  const auto spread = [&](const at::Tensor& values, const at::Scalar& empty) {
    return scattered(values, rows, T, empty);
  };
  const double none = std::numeric_limits<double>::quiet_NaN();
  return {spread(logits.top_id_Tk, -1),          spread(logits.top_logprob_Tk, none), spread(logits.logsumexp_T, none),
          spread(logits.target_logprob_T, none), spread(logits.entropy_T, none),      spread(logits.tail_mass_T, none)};
}

}  // namespace magister
