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

constexpr float kSlack = 1e-3f;  // rounding may put the log-probability of a near-certain token a little above 0

template <typename T>
bool has_column(const ResultsReader& file, const Column<T>& column, FaultList& faults,
                ColumnType type = Column<T>::kType) {
  const ColumnSpec* const found = file.find(column);
  const bool right = found != nullptr && found->type == type && found->extent == column.extent;
  if (!right) faults.add("dataset {} is missing or has another type or shape than texts have", column.path);
  return right;
}

// top_id and top_logprob are both present, with the same width, or both absent.
bool has_tops(const ResultsReader& file, FaultList& faults) {
  const ColumnSpec* ids = file.find(generate_column::kTopId);
  const ColumnSpec* logprobs = file.find(generate_column::kTopLogprob);
  if (ids == nullptr && logprobs == nullptr) return true;
  bool right = has_column(file, generate_column::kTopId, faults);
  right &= has_column(file, generate_column::kTopLogprob, faults);
  if (right && ids != nullptr && logprobs != nullptr && ids->width != logprobs->width) {
    faults.add("{} has {} entries per row, {} {}", ids->path, ids->width, logprobs->path, logprobs->width);
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
  if (file.find(generate_column::kSlotId) != nullptr) return false;  // a running file has no packed rows to check
  bool right = has_column(file, Column<std::string>{"/samples/key"}, faults, ColumnType::kUtf8);
  right &= has_column(file, Column<std::uint64_t>{"/samples/source_index"}, faults);
  right &= has_column(file, Column<TokenId>{"/tokens/id", "", "", ColumnSpec::Extent::kRows}, faults);
  right &= has_column(file, generate_column::kLogprob, faults);
  right &= has_column(file, generate_column::kTextIndex, faults);
  right &= has_column(file, generate_column::kFinishReason, faults);
  // Files of format version 1 have strings of one fixed length.
  const bool fixed = file.number("format_version") == 1;
  right &= has_column(file, generate_column::kText, faults, fixed ? ColumnType::kUtf8 : ColumnType::kText);
  right &= has_tops(file, faults);
  if (file.find(generate_column::kGuideKl) != nullptr) right &= has_column(file, generate_column::kGuideKl, faults);
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
    const auto indices = file.rows(generate_column::kTextIndex, first, count);
    const auto reasons = file.rows(generate_column::kFinishReason, first, count);
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
    file.for_each_text(generate_column::kText.path, {0, n}, [&](std::uint64_t i, std::string_view text) {
      if (find_invalid_utf8(text) != text.size()) faults.add("text {} is not valid UTF-8", i);
    });
  } catch (const Error& error) {
    if (error.code() != ExitCode::kData) throw;
    faults.add("{}", error.what());
  }
}

void check_generate_rows(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  const ColumnSpec* tops = file.find(generate_column::kTopId);
  const std::uint64_t k = tops == nullptr ? 0 : std::max<std::uint64_t>(tops->width, 1);
  const std::uint64_t rows_at_once = (1 << 18) / (1 + k) + 1;
  for (std::uint64_t begin = unit.rows.begin; begin < unit.rows.end; begin += rows_at_once) {
    const std::uint64_t count = std::min(rows_at_once, unit.rows.end - begin);
    const auto ids = file.rows<std::int32_t>("/tokens/id", begin, count);
    const auto logprobs = file.rows(generate_column::kLogprob, begin, count);
    std::vector<TokenId> top_ids;
    std::vector<float> top_logprobs;
    if (k > 0) {
      top_ids = file.rows(generate_column::kTopId, begin, count, k);
      top_logprobs = file.rows(generate_column::kTopLogprob, begin, count, k);
    }
    const std::vector<float> kl = file.find(generate_column::kGuideKl)
                                      ? file.rows(generate_column::kGuideKl, begin, count)
                                      : std::vector<float>();
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

constexpr ColumnNames kNamesOfTexts[] = {{.path = generate_column::kFinishReason.path, .names = "stop,length"}};

}  // namespace

constinit const ResultsSchema kGenerateSchema = {.format = "magister.generate",
                                                 .newest_version = 2,
                                                 .columns = check_generate_columns,
                                                 .samples = check_generate_samples,
                                                 .rows = check_generate_rows,
                                                 .exported = {.names = kNamesOfTexts}};

}  // namespace magister
