// Checks a file of texts from its bytes alone: columns and types, token ids, log-probabilities, finish reasons, and
// that every record of the slice has its n texts in order. If the most probable tokens were kept, it also checks their
// order, and that the written token has the same log-probability among them.
#include <cmath>
#include <cstring>

#include "magister/core/error.h"
#include "magister/core/utf8.h"
#include "tasks/generate/columns.h"

namespace magister {
namespace {

using Extent = ColumnSpec::Extent;
constexpr float kSlack = 1e-3f;  // rounding may put the log-probability of a near-certain token a little above 0

bool has_column(const ResultsReader& file, const char* path, ColumnType type, Extent extent, FaultList& faults) {
  const ColumnSpec* column = file.find(path);
  const bool right = column != nullptr && column->type == type && column->extent == extent;
  if (!right) faults.add("dataset {} is missing or has another type or shape than texts have", path);
  return right;
}

// top_id and top_logprob are both present, with the same width, or both absent.
bool has_tops(const ResultsReader& file, FaultList& faults) {
  const ColumnSpec* ids = file.find("/generate/top_id");
  const ColumnSpec* logprobs = file.find("/generate/top_logprob");
  if (ids == nullptr && logprobs == nullptr) return true;
  bool right = has_column(file, "/generate/top_id", ColumnType::kI32, Extent::kRows, faults);
  right &= has_column(file, "/generate/top_logprob", ColumnType::kF32, Extent::kRows, faults);
  if (right && ids != nullptr && logprobs != nullptr && ids->width != logprobs->width) {
    faults.add("/generate/top_id has {} entries per row, /generate/top_logprob {}", ids->width, logprobs->width);
    return false;
  }
  return right;
}

// Checks one row's kept entries against each other and against the written token.
void check_tops(std::uint64_t row, std::span<const std::int32_t> ids, std::span<const float> logprobs,
                std::int32_t written, float written_logprob, FaultList& faults) {
  for (std::size_t j = 0; j < ids.size(); ++j) {
    if (ids[j] < 0) faults.add("row {}: kept token id {} is not a token", row, ids[j]);
    if (!(logprobs[j] <= kSlack)) faults.add("row {}: a kept token has log-probability {}", row, logprobs[j]);
    if (j > 0 && (logprobs[j] > logprobs[j - 1] || (logprobs[j] == logprobs[j - 1] && ids[j] == ids[j - 1]))) {
      faults.add("row {}: kept token {} comes after {}, which is not more probable", row, ids[j], ids[j - 1]);
    }
    if (ids[j] == written && logprobs[j] != written_logprob) {
      faults.add("row {}: token {} has log-probability {} among the kept ones and {} as the written one", row, written,
                 logprobs[j], written_logprob);
    }
  }
  if (!ids.empty() && written_logprob > logprobs[0])
    faults.add("row {}: token {} is more probable than the best one", row, written);
}

bool check_generate_columns(const ResultsReader& file, FaultList& faults) {
  if (file.find("/generate/slot_id") != nullptr) return false;  // a running file has no packed rows to check
  bool right = has_column(file, "/samples/key", ColumnType::kUtf8, Extent::kSamples, faults);
  right &= has_column(file, "/samples/source_index", ColumnType::kU64, Extent::kSamples, faults);
  right &= has_column(file, "/tokens/id", ColumnType::kI32, Extent::kRows, faults);
  right &= has_column(file, "/generate/logprob", ColumnType::kF32, Extent::kRows, faults);
  right &= has_column(file, "/generate/text_index", ColumnType::kU32, Extent::kSamples, faults);
  right &= has_column(file, "/generate/finish_reason", ColumnType::kU8, Extent::kSamples, faults);
  // Files of format version 1 have strings of one fixed length.
  const bool fixed = file.number("format_version") == 1;
  right &= has_column(file, "/generate/text", fixed ? ColumnType::kUtf8 : ColumnType::kText, Extent::kSamples, faults);
  right &= has_tops(file, faults);
  if (file.find("/generate/guide_kl") != nullptr)
    right &= has_column(file, "/generate/guide_kl", ColumnType::kF32, Extent::kRows, faults);
  return right;
}

void check_generate_samples(const ResultsReader& file, FaultList& faults) {
  const std::uint64_t n = file.num_samples();
  constexpr std::uint64_t kBlock = 1 << 16;
  std::uint64_t source_before = 0;
  std::uint32_t index_before = 0;
  for (std::uint64_t first = 0; first < n; first += kBlock) {
    const std::uint64_t count = std::min(kBlock, n - first);
    const auto sources = file.rows<std::uint64_t>("/samples/source_index", first, count);
    const auto indices = file.rows<std::uint32_t>("/generate/text_index", first, count);
    const auto reasons = file.rows<std::uint8_t>("/generate/finish_reason", first, count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const bool begins = first + i == 0 || sources[i] == source_before + 1;
      const bool follows = begins ? indices[i] == 0 : sources[i] == source_before && indices[i] == index_before + 1;
      if (!follows) {
        faults.add("text {} is number {} of record {}, after number {} of record {}", first + i, indices[i], sources[i],
                   index_before, source_before);
      }
      source_before = sources[i];
      index_before = indices[i];
      if (reasons[i] > 1) faults.add("text {}: finish_reason is {}, neither 0 nor 1", first + i, reasons[i]);
    }
  }
  try {
    file.for_each_text("/generate/text", {0, n}, [&](std::uint64_t i, std::string_view text) {
      if (find_invalid_utf8(text) != text.size()) faults.add("text {} is not valid UTF-8", i);
    });
  } catch (const Error& error) {
    if (error.code() != ExitCode::kData) throw;
    faults.add("{}", error.what());
  }
}

void check_generate_rows(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  const ColumnSpec* tops = file.find("/generate/top_id");
  const std::uint64_t k = tops == nullptr ? 0 : std::max<std::uint64_t>(tops->width, 1);
  const std::uint64_t rows_at_once = (1 << 18) / (1 + k) + 1;
  for (std::uint64_t begin = unit.rows.begin; begin < unit.rows.end; begin += rows_at_once) {
    const std::uint64_t count = std::min(rows_at_once, unit.rows.end - begin);
    const auto ids = file.rows<std::int32_t>("/tokens/id", begin, count);
    const auto logprobs = file.rows<float>("/generate/logprob", begin, count);
    std::vector<std::int32_t> top_ids(count * k);
    std::vector<float> top_logprobs(count * k);
    if (k > 0) {
      file.read("/generate/top_id", begin, std::as_writable_bytes(std::span(top_ids)));
      file.read("/generate/top_logprob", begin, std::as_writable_bytes(std::span(top_logprobs)));
    }
    const std::vector<float> kl =
        file.find("/generate/guide_kl") ? file.rows<float>("/generate/guide_kl", begin, count) : std::vector<float>();
    for (std::uint64_t i = 0; i < kl.size(); ++i) {
      if (!(kl[i] >= 0 && std::isfinite(kl[i]))) faults.add("row {}: the KL to the reference is {}", begin + i, kl[i]);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      check_tops(begin + i, std::span(top_ids).subspan(i * k, k), std::span(top_logprobs).subspan(i * k, k), ids[i],
                 logprobs[i], faults);
      if (ids[i] < 0) faults.add("row {}: token id {} is not a token", begin + i, ids[i]);
      if (!(logprobs[i] <= kSlack)) faults.add("row {}: the token has log-probability {}", begin + i, logprobs[i]);
    }
  }
}

}  // namespace

const ResultsSchema kGenerateSchema = {"magister.generate", 2, check_generate_columns, check_generate_samples,
                                       check_generate_rows};

}  // namespace magister
