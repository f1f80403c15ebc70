// The promises of texts, from the file alone: columns and types, token ids, log-probabilities, reasons, and that every
// record of the slice has its n texts in order.
#include <cmath>
#include <cstring>

#include "io/results_check.h"
#include "magister/core/utf8.h"

namespace magister {
namespace {

using Extent = ColumnSpec::Extent;
constexpr float kSlack = 1e-3f;  // a near-certain token's log-probability may come out a little above 0

bool has_column(const ResultsReader& file, const char* path, ColumnType type, Extent extent, FaultList& faults) {
  const PlacedColumn* column = file.columns().find(path);
  const bool right = column != nullptr && column->spec.type == type && column->spec.extent == extent;
  if (!right) faults.add("dataset {} is missing or has another type or shape than texts have", path);
  return right;
}

}  // namespace

bool check_generate_columns(const ResultsReader& file, FaultList& faults) {
  if (file.columns().find("/generate/slot_id") != nullptr) return false;  // texts under way: no rows to have rules
  bool right = has_column(file, "/samples/key", ColumnType::kUtf8, Extent::kSamples, faults);
  right &= has_column(file, "/samples/source_index", ColumnType::kU64, Extent::kSamples, faults);
  right &= has_column(file, "/tokens/id", ColumnType::kI32, Extent::kRows, faults);
  right &= has_column(file, "/generate/logprob", ColumnType::kF32, Extent::kRows, faults);
  right &= has_column(file, "/generate/text_index", ColumnType::kU32, Extent::kSamples, faults);
  right &= has_column(file, "/generate/finish_reason", ColumnType::kU8, Extent::kSamples, faults);
  right &= has_column(file, "/generate/text", ColumnType::kUtf8, Extent::kSamples, faults);
  return right;
}

void check_generate_samples(const ResultsReader& file, FaultList& faults) {
  const ResultsColumns& columns = file.columns();
  const std::uint64_t n = columns.num_samples(), width = columns.at("/generate/text").spec.width;
  std::string text(width, '\0');
  std::uint64_t source_before = 0;
  std::uint32_t index_before = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t source = columns.rows<std::uint64_t>("/samples/source_index", i, 1)[0];
    const std::uint32_t index = columns.rows<std::uint32_t>("/generate/text_index", i, 1)[0];
    const bool follows = i == 0 ? index == 0 : (source == source_before && index == index_before + 1) ||
                                                   (source == source_before + 1 && index == 0);
    if (!follows) faults.add("text {} is number {} of record {}, after number {} of record {}", i, index, source, index_before, source_before);
    source_before = source;
    index_before = index;
    const std::uint8_t reason = columns.rows<std::uint8_t>("/generate/finish_reason", i, 1)[0];
    if (reason > 1) faults.add("text {}: finish_reason is {}, neither 0 nor 1", i, reason);
    columns.read(columns.at("/generate/text"), i, std::as_writable_bytes(std::span(text)));
    if (find_invalid_utf8(text) != text.size()) faults.add("text {} is not valid UTF-8", i);
  }
}

void check_generate_rows(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  constexpr std::uint64_t kRows = 1 << 18;
  const ResultsColumns& columns = file.columns();
  for (std::uint64_t begin = unit.rows.begin; begin < unit.rows.end; begin += kRows) {
    const std::uint64_t count = std::min(kRows, unit.rows.end - begin);
    const auto ids = columns.rows<std::int32_t>("/tokens/id", begin, count);
    const auto logprobs = columns.rows<float>("/generate/logprob", begin, count);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (ids[i] < 0) faults.add("row {}: token id {} is no token", begin + i, ids[i]);
      if (!(logprobs[i] <= kSlack)) faults.add("row {}: the token has log-probability {}", begin + i, logprobs[i]);
    }
  }
}

}  // namespace magister
