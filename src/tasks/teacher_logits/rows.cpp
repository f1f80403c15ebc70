// Converts the rows of a unit to the bytes of the file. All threads check and convert rows, each row once.
#include <ATen/ATen.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "magister/core/error.h"
#include "magister/parallel/thread_pool.h"
#include "tasks/teacher_logits/columns.h"

namespace magister {
namespace {

constexpr std::int64_t kTileRows = 256;

std::vector<std::byte> bytes_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* data = static_cast<const std::byte*>(flat.const_data_ptr());
  return {data, data + flat.nbytes()};
}

bool is_scored(std::span<const std::uint8_t> scored_T, std::int64_t t) {
  return scored_T.empty() || scored_T[static_cast<std::size_t>(t)] != 0;
}

// The token after each row; -1 in the last row of a sample.
std::vector<TokenId> next_tokens(const PackedBatch& batch) {
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  std::vector<TokenId> next_T(static_cast<std::size_t>(batch.num_tokens()));
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    for (std::int64_t t = batch.cu_seqlens[s]; t < batch.cu_seqlens[s + 1]; ++t)
      next_T[static_cast<std::size_t>(t)] = t + 1 == batch.cu_seqlens[s + 1] ? -1 : ids[t + 1];
  }
  return next_T;
}

// Checks one scored row.
void check_alignment(std::int64_t t, TokenId next, std::span<const std::int32_t> top_id, const float* top_logprob,
                     float target) {
  MAGISTER_CHECK(
      std::isnan(target) == (next < 0), ExitCode::kInternal,
      "row {} of the unit has target_logprob {} (NaN belongs to a sample's last row only, and rows are shifted); "
      "report this",
      t, target);
  if (next < 0) return;
  const auto found = std::find(top_id.begin(), top_id.end(), next);
  if (found == top_id.end()) return;
  const float stored = top_logprob[found - top_id.begin()];
  MAGISTER_CHECK(stored == target, ExitCode::kInternal,
                 "row {} of the unit gives its next token {} the log-probability {} as a kept entry and {} as the "
                 "target (rows are shifted); report this",
                 t, next, stored, target);
}

// Packs ids into row, which has packed_bytes(ids.size(), bits) bytes, and unpacks them again to compare. again: work
// memory.
void pack_row(std::int64_t t, std::span<const std::int32_t> ids, std::uint64_t bits, std::span<std::byte> row,
              std::vector<std::int32_t>& again) {
  pack_ids(ids, bits, row);
  again.resize(ids.size());
  unpack_ids(row, bits, again);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    MAGISTER_CHECK(again[i] == std::max(ids[i], 0), ExitCode::kInternal,
                   "row {} of the unit: id {} comes back as {} from {} bits (the student would learn another token); "
                   "report this",
                   t, ids[i], again[i], bits);
  }
}

// Faults of a conversion to f16: the largest log-probability that is lost, and the largest error above the promise of
// `encoding_error`.
struct HalfFaults {
  float lost = -std::numeric_limits<float>::infinity();
  bool any_lost = false;
  double error = 0;
  bool any_error = false;
};

float widened(std::uint16_t half) { return _cvtsh_ss(half); }

HalfFaults compare(const float* exact, const std::uint16_t* half, std::int64_t count) {
  HalfFaults faults;
  for (std::int64_t i = 0; i < count; ++i) {
    const double is = exact[i], stored = widened(half[i]);
    // Every good number passes this one comparison; NaN and infinities do not.
    const double error = std::abs(stored - is), bound = std::max(std::abs(is) * 0x1p-11, 0x1p-25);
    if (error <= bound) [[likely]]
      continue;
    if (std::isinf(stored) && std::isfinite(exact[i])) {
      faults.lost = std::max(faults.lost, exact[i]);
      faults.any_lost = true;
    }
    if (stored == is || std::isnan(exact[i])) continue;
    faults.error = std::max(faults.error, error);
    faults.any_error = true;
  }
  return faults;
}

// Writes logprob_Rk as f16 to `to`, with the rounding of ATen. packed: the error must be within the promise of the
// file.
void convert_halves(const at::Tensor& logprob_Rk, std::byte* to, bool packed) {
  at::Tensor half_Rk = at::from_blob(to, logprob_Rk.sizes(), at::TensorOptions(at::kHalf));
  half_Rk.copy_(logprob_Rk);
  const HalfFaults faults =
      compare(logprob_Rk.const_data_ptr<float>(), reinterpret_cast<const std::uint16_t*>(to), logprob_Rk.numel());
  // The smallest f16 is -65504: a log-probability below it would be stored as that of an impossible token.
  MAGISTER_CHECK(
      !faults.any_lost, ExitCode::kData,
      "a log-probability of {:.6g} is below what 16 bits hold (it would be stored as minus infinity); choose "
      "`encoding: plain` with `logprob_dtype: f32`, or a smaller top_k",
      faults.lost);
  MAGISTER_CHECK(!packed || !faults.any_error, ExitCode::kInternal,
                 "a log-probability is stored with an error of {} nat (more than the file promises); report this",
                 faults.error);
}

// The columns with many numbers per row; threads fill them tile by tile.
struct WideColumns {
  std::vector<std::byte> id, logprob, draws;
};

class RowMaker {
 public:
  RowMaker(const ReducedLogits& logits, const PackedBatch& batch, std::span<const std::uint8_t> scored_T,
           const TeacherEncoding& encoding, bool half, const at::Tensor& draws_Td)
      : logits_{logits.top_id_Tk.contiguous(),
                logits.top_logprob_Tk.contiguous(),
                logits.logsumexp_T,
                logits.target_logprob_T.contiguous(),
                logits.entropy_T,
                logits.tail_mass_T},
        next_T_(next_tokens(batch)),
        scored_T_(scored_T),
        encoding_(encoding),
        half_(half),
        draws_Td_(draws_Td.defined() ? draws_Td.contiguous() : draws_Td),
        rows_(logits.top_id_Tk.size(0)),
        k_(logits.top_id_Tk.size(1)) {
    const auto rows = static_cast<std::size_t>(rows_);
    columns_.id.resize(rows * id_bytes());
    columns_.logprob.resize(rows * logprob_bytes());
    if (encoding.kind == TeacherEncoding::Kind::kSampled) columns_.draws.resize(rows * draw_bytes());
  }

  WideColumns make(ThreadPool* pool) {
    on_threads(pool, (rows_ + kTileRows - 1) / kTileRows,
               [&](std::int64_t tile) { make_tile(tile * kTileRows, std::min(rows_, (tile + 1) * kTileRows)); });
    return std::move(columns_);
  }

 private:
  std::size_t id_bytes() const {
    const auto k = static_cast<std::size_t>(k_);
    return encoding_.is_packed() ? packed_bytes(k, encoding_.bits) : k * sizeof(std::int32_t);
  }
  std::size_t logprob_bytes() const {
    return static_cast<std::size_t>(k_) * (half_ ? sizeof(std::uint16_t) : sizeof(float));
  }
  std::size_t draw_bytes() const { return packed_bytes(static_cast<std::uint64_t>(draws_Td_.size(1)), encoding_.bits); }
  static std::span<const std::int32_t> ids_of(const at::Tensor& ids_TK, std::int64_t t) {
    return {ids_TK.const_data_ptr<std::int32_t>() + t * ids_TK.size(1), static_cast<std::size_t>(ids_TK.size(1))};
  }
  static std::span<std::byte> row_of(std::vector<std::byte>& bytes, std::int64_t t, std::size_t width) {
    return std::span(bytes).subspan(static_cast<std::size_t>(t) * width, width);
  }

  void make_tile(std::int64_t begin, std::int64_t end) {
    const float* const logprob = logits_.top_logprob_Tk.const_data_ptr<float>();
    const float* const target = logits_.target_logprob_T.const_data_ptr<float>();
    for (std::int64_t t = begin; t < end; ++t) {
      if (is_scored(scored_T_, t))
        check_alignment(t, next_T_[static_cast<std::size_t>(t)], ids_of(logits_.top_id_Tk, t), logprob + t * k_,
                        target[t]);
    }
    std::byte* const to = columns_.logprob.data() + static_cast<std::size_t>(begin) * logprob_bytes();
    if (half_) {
      convert_halves(logits_.top_logprob_Tk.narrow(0, begin, end - begin), to, encoding_.is_packed());
    } else {
      std::memcpy(to, logprob + begin * k_, static_cast<std::size_t>(end - begin) * logprob_bytes());
    }
    if (!encoding_.is_packed()) {
      std::memcpy(columns_.id.data() + static_cast<std::size_t>(begin) * id_bytes(),
                  ids_of(logits_.top_id_Tk, begin).data(), static_cast<std::size_t>(end - begin) * id_bytes());
      return;
    }
    std::vector<std::int32_t> again;
    for (std::int64_t t = begin; t < end; ++t) {
      pack_row(t, ids_of(logits_.top_id_Tk, t), encoding_.bits, row_of(columns_.id, t, id_bytes()), again);
      if (!columns_.draws.empty())
        pack_row(t, ids_of(draws_Td_, t), encoding_.bits, row_of(columns_.draws, t, draw_bytes()), again);
    }
  }

  const ReducedLogits logits_;
  const std::vector<TokenId> next_T_;
  const std::span<const std::uint8_t> scored_T_;
  const TeacherEncoding& encoding_;
  const bool half_;
  const at::Tensor draws_Td_;
  const std::int64_t rows_, k_;
  WideColumns columns_;
};

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

std::vector<ColumnBytes> teacher_rows(const ReducedLogits& logits, const PackedBatch& batch,
                                      std::span<const std::uint8_t> scored_T, const TeacherEncoding& encoding,
                                      bool half, const at::Tensor& draws_Td, ThreadPool* pool) {
  const std::int64_t bad = first_row_not_finite(logits, scored_T);
  MAGISTER_CHECK(bad < 0, ExitCode::kData,
                 "row {} of the unit: the model's logits are not finite (nothing useful can be stored); check the "
                 "weights and the dtype",
                 bad);
  WideColumns wide = RowMaker(logits, batch, scored_T, encoding, half, draws_Td).make(pool);
  using namespace teacher_column;
  std::vector<ColumnBytes> columns;
  columns.push_back({encoding.is_packed() ? kTopIdPacked.path : kTopId.path, std::move(wide.id)});
  columns.push_back({kTopLogprob.path, std::move(wide.logprob)});
  columns.push_back({kLogsumexp.path, bytes_of(logits.logsumexp_T)});
  columns.push_back({kTargetLogprob.path, bytes_of(logits.target_logprob_T)});
  columns.push_back({kEntropy.path, bytes_of(logits.entropy_T)});
  columns.push_back({kTailMass.path, bytes_of(logits.tail_mass_T)});
  if (encoding.kind == TeacherEncoding::Kind::kSampled) columns.push_back({kTailIdPacked.path, std::move(wide.draws)});
  return columns;
}

}  // namespace magister
