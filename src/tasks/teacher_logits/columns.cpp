// Names, types and comments of the teacher's datasets, and the check of alignment before anything is written.
#include "tasks/teacher_logits/columns.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "magister/core/error.h"
#include "magister/run/unit_samples.h"

namespace magister {

std::vector<ColumnSpec> teacher_columns(const TeacherShape& shape) {
  using Extent = ColumnSpec::Extent;
  const std::uint64_t n = shape.num_samples, T = shape.num_tokens, k = shape.encoding.top_k;
  const ColumnType logprob = shape.half ? ColumnType::kF16 : ColumnType::kF32;
  std::vector<ColumnSpec> columns =
      sample_columns(n, T, shape.key_bytes, "rows of sample i are offset[i] .. offset[i+1] of /tokens and /teacher",
                     "the tokens as the model saw them");
  const std::string best =
      "the most probable next tokens, best first; ties: lower id first. Row i is the distribution of token i+1 given "
      "tokens up to i";
  const TeacherEncoding& encoding = shape.encoding;
  if (encoding.is_packed()) {
    columns.push_back({kTopIdPacked, ColumnType::kU8, T, packed_bytes(k, encoding.bits),
                       best + fmt::format(". {} ids of {} bits, the lowest bit first", k, encoding.bits), "",
                       Extent::kRows});
  } else {
    columns.push_back({"/teacher/top_id", ColumnType::kI32, T, k, best, "", Extent::kRows});
  }
  columns.insert(
      columns.end(),
      {
          {"/teacher/top_logprob", logprob, T, k,
           "their log-probabilities: log-softmax over the whole vocabulary, never renormalised over the kept entries",
           "nat", Extent::kRows},
          {"/teacher/logsumexp", ColumnType::kF32, T, 0, "log-sum-exp of the raw logits: logit = logprob + logsumexp",
           "nat", Extent::kRows},
          {"/teacher/target_logprob", ColumnType::kF32, T, 0,
           "log-probability of the token that follows; NaN in a sample's last row", "nat", Extent::kRows},
          {"/teacher/entropy", ColumnType::kF32, T, 0, "entropy of the whole distribution", "nat", Extent::kRows},
          {"/teacher/tail_mass", ColumnType::kF32, T, 0, "1 - the probability mass of the kept entries", "",
           Extent::kRows},
      });
  if (encoding.kind == TeacherEncoding::Kind::kSampled) {
    columns.push_back(
        {kTailIdPacked, ColumnType::kU8, T, packed_bytes(encoding.draws, encoding.bits),
         fmt::format("an unbiased sample of the tokens that are not kept, ascending; each draw stands for "
                     "tail_mass / {}. {} ids of {} bits, the lowest bit first",
                     encoding.draws, encoding.draws, encoding.bits),
         "", Extent::kRows});
  }
  if (shape.marked) {
    columns.push_back({"/tokens/assistant", ColumnType::kU8, T, 0,
                       "1: written by the assistant of the chat. Only rows before such a token are scored; the others "
                       "hold -1 and NaN",
                       "", Extent::kRows});
  }
  return columns;
}

namespace {

std::vector<std::byte> bytes_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* data = static_cast<const std::byte*>(flat.const_data_ptr());
  return {data, data + flat.nbytes()};
}

bool is_scored(std::span<const std::uint8_t> scored_T, std::int64_t t) {
  return scored_T.empty() || scored_T[static_cast<std::size_t>(t)] != 0;
}

void check_alignment(const ReducedLogits& logits, const PackedBatch& batch, std::span<const std::uint8_t> scored_T) {
  const std::int64_t k = logits.top_id_Tk.size(1);
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  const auto* top_id = logits.top_id_Tk.const_data_ptr<std::int32_t>();
  const auto* top_logprob = logits.top_logprob_Tk.const_data_ptr<float>();
  const auto* target = logits.target_logprob_T.const_data_ptr<float>();
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    for (std::int64_t t = batch.cu_seqlens[s]; t < batch.cu_seqlens[s + 1]; ++t) {
      const bool last = t + 1 == batch.cu_seqlens[s + 1];
      if (!is_scored(scored_T, t)) continue;
      MAGISTER_CHECK(
          std::isnan(target[t]) == last, ExitCode::kInternal,
          "row {} of the unit has target_logprob {} (NaN belongs to a sample's last row only, and rows are shifted); "
          "report this",
          t, target[t]);
      if (last) continue;
      for (std::int64_t i = 0; i < k; ++i) {
        if (top_id[t * k + i] != ids[t + 1]) continue;
        MAGISTER_CHECK(
            top_logprob[t * k + i] == target[t], ExitCode::kInternal,
            "row {} of the unit gives its next token {} the log-probability {} as a kept entry and {} as the "
            "target (rows are shifted); report this",
            t, ids[t + 1], top_logprob[t * k + i], target[t]);
        break;
      }
    }
  }
}

}  // namespace

std::int64_t first_row_not_finite(const ReducedLogits& logits, std::span<const std::uint8_t> scored_T) {
  const std::int64_t k = logits.top_id_Tk.size(1);
  const auto* top_id = logits.top_id_Tk.const_data_ptr<std::int32_t>();
  const auto* logsumexp = logits.logsumexp_T.const_data_ptr<float>();
  const auto* entropy = logits.entropy_T.const_data_ptr<float>();
  for (std::int64_t t = 0; t < logits.top_id_Tk.size(0); ++t) {
    if (is_scored(scored_T, t) && (top_id[t * k] < 0 || !std::isfinite(logsumexp[t]) || !std::isfinite(entropy[t])))
      return t;
  }
  return -1;
}

namespace {

std::vector<std::byte> packed_rows(const at::Tensor& ids_TK, std::uint64_t bits) {
  const std::int64_t T = ids_TK.size(0);
  const auto K = static_cast<std::size_t>(ids_TK.size(1)), bytes = packed_bytes(K, bits);
  std::vector<std::byte> rows(static_cast<std::size_t>(T) * bytes);
  std::vector<std::int32_t> again(K);
  for (std::int64_t t = 0; t < T; ++t) {
    const std::span<const std::int32_t> ids(ids_TK.const_data_ptr<std::int32_t>() + t * ids_TK.size(1), K);
    const auto row = std::span(rows).subspan(static_cast<std::size_t>(t) * bytes, bytes);
    pack_ids(ids, bits, row);
    unpack_ids(row, bits, again);
    for (std::size_t i = 0; i < K; ++i) {
      MAGISTER_CHECK(again[i] == std::max(ids[i], 0), ExitCode::kInternal,
                     "row {} of the unit: id {} comes back as {} from {} bits (the student would learn another token); "
                     "report this",
                     t, ids[i], again[i], bits);
    }
  }
  return rows;
}

// A half ends at -65504: a log-probability below would be stored as that of a token which is impossible.
void check_range(const at::Tensor& logprob_Tk, const at::Tensor& half_Tk) {
  const at::Tensor lost = at::logical_and(half_Tk.isinf(), at::isfinite(logprob_Tk));
  MAGISTER_CHECK(
      !lost.any().item<bool>(), ExitCode::kData,
      "a log-probability of {:.6g} is below what 16 bits hold (it would be stored as minus infinity); choose "
      "`encoding: plain` with `logprob_dtype: f32`, or a smaller top_k",
      logprob_Tk.masked_select(lost).max().item<float>());
}

// What `encoding_error` promises of a half.
void check_halves(const at::Tensor& logprob_Tk, const at::Tensor& half_Tk) {
  const at::Tensor exact = logprob_Tk.to(at::kDouble);
  const at::Tensor error = at::where(exact == half_Tk.to(at::kDouble), 0.0, (half_Tk.to(at::kDouble) - exact).abs());
  const at::Tensor bound = at::clamp_min(exact.abs() * 0x1p-11, 0x1p-25);
  const at::Tensor wrong = at::logical_and(at::logical_not(error <= bound), at::logical_not(exact.isnan()));
  MAGISTER_CHECK(!wrong.any().item<bool>(), ExitCode::kInternal,
                 "a log-probability is stored with an error of {} nat (more than the file promises); report this",
                 error.masked_select(wrong).max().item<double>());
}

}  // namespace

std::vector<ColumnBytes> teacher_rows(const ReducedLogits& logits, const PackedBatch& batch,
                                      std::span<const std::uint8_t> scored_T, const TeacherEncoding& encoding,
                                      bool half, const at::Tensor& draws_Td) {
  const std::int64_t bad = first_row_not_finite(logits, scored_T);
  MAGISTER_CHECK(bad < 0, ExitCode::kData,
                 "row {} of the unit: the model's logits are not finite (nothing useful can be stored); check the "
                 "weights and the dtype",
                 bad);
  check_alignment(logits, batch, scored_T);
  const at::Tensor logprob = half ? logits.top_logprob_Tk.to(at::kHalf) : logits.top_logprob_Tk;
  if (half) check_range(logits.top_logprob_Tk, logprob);
  std::vector<ColumnBytes> columns = {{"/teacher/top_logprob", bytes_of(logprob)},
                                      {"/teacher/logsumexp", bytes_of(logits.logsumexp_T)},
                                      {"/teacher/target_logprob", bytes_of(logits.target_logprob_T)},
                                      {"/teacher/entropy", bytes_of(logits.entropy_T)},
                                      {"/teacher/tail_mass", bytes_of(logits.tail_mass_T)}};
  if (encoding.is_packed()) {
    check_halves(logits.top_logprob_Tk, logprob);
    columns.insert(columns.begin(), {kTopIdPacked, packed_rows(logits.top_id_Tk, encoding.bits)});
  } else {
    columns.insert(columns.begin(), {"/teacher/top_id", bytes_of(logits.top_id_Tk)});
  }
  if (encoding.kind == TeacherEncoding::Kind::kSampled)
    columns.push_back({kTailIdPacked, packed_rows(draws_Td, encoding.bits)});
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
