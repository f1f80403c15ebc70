// Offsets come from the file, so they are checked before use.
#include "magister/run/unit_samples.h"

#include <span>

#include "magister/core/error.h"

namespace magister {

std::vector<ColumnSpec> sample_columns(std::uint64_t num_samples, std::uint64_t num_tokens, std::uint64_t key_bytes,
                                       const std::string& offset_comment, const std::string& tokens_comment) {
  using Extent = ColumnSpec::Extent;
  return {{"/samples/key", ColumnType::kUtf8, num_samples, key_bytes, "the record's key, or its index in the data set",
           "", Extent::kSamples},
          {"/samples/source_index", ColumnType::kU64, num_samples, 0, "position of the record in the data set", "",
           Extent::kSamples},
          {"/samples/offset", ColumnType::kU64, num_samples + 1, 0, offset_comment, "", Extent::kFixed},
          {"/tokens/id", ColumnType::kI32, num_tokens, 0, tokens_comment, "", Extent::kRows}};
}

std::vector<std::uint64_t> sample_offsets(const ResultsFile& file, const Unit& unit) {
  std::vector<std::uint64_t> offset(unit.samples.size() + 1);
  file.read("/samples/offset", unit.samples.begin, std::as_writable_bytes(std::span(offset)));
  for (std::size_t i = 0; i + 1 < offset.size(); ++i) {
    MAGISTER_CHECK(unit.rows.begin <= offset[i] && offset[i] <= offset[i + 1] && offset[i + 1] <= unit.rows.end,
                   ExitCode::kData,
                   "sample {} is at rows {} to {}, outside its unit's rows {} to {} (the offsets of the results "
                   "file are damaged); start over with --fresh",
                   unit.samples.begin + i, offset[i], offset[i + 1], unit.rows.begin, unit.rows.end);
  }
  return offset;
}

std::vector<std::vector<TokenId>> sample_tokens(const ResultsFile& file, const Unit& unit) {
  const std::vector<std::uint64_t> offset = sample_offsets(file, unit);
  std::vector<TokenId> ids(unit.rows.size());
  file.read("/tokens/id", unit.rows.begin, std::as_writable_bytes(std::span(ids)));
  std::vector<std::vector<TokenId>> samples;
  for (std::size_t i = 0; i + 1 < offset.size(); ++i) {
    samples.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(offset[i] - unit.rows.begin),
                         ids.begin() + static_cast<std::ptrdiff_t>(offset[i + 1] - unit.rows.begin));
  }
  return samples;
}

}  // namespace magister
