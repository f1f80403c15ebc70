// See columns.h. `check` reads this file alone.
#include "tasks/score/columns.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "magister/core/error.h"
#include "magister/run/unit_samples.h"
#include "magister/tasks/score/unread_counts.h"

namespace magister {

std::vector<ColumnSpec> score_columns(std::uint64_t num_samples, std::uint64_t num_tokens, std::uint64_t key_bytes,
                                      std::size_t num_labels) {
  std::vector<ColumnSpec> columns =
      sample_columns(num_samples, num_tokens, key_bytes, "tokens of sample i are offset[i] .. offset[i+1] of /tokens",
                     "the tokens as the model saw them");
  columns.push_back({"/score/value", ColumnType::kF32, num_samples, num_labels == 1 ? 0 : num_labels,
                     num_labels == 1 ? "the number that the model gives to the record"
                                     : "a number for each label, in the order of the attribute `labels`",
                     "", ColumnSpec::Extent::kSamples});
  return columns;
}

std::vector<ColumnSpec> verifier_columns(std::uint64_t num_samples, std::uint64_t key_bytes, bool classes,
                                         bool unread) {
  using Extent = ColumnSpec::Extent;
  std::vector<ColumnSpec> columns =
      sample_columns(num_samples, 0, key_bytes, "no tokens are kept: a rule reads texts", "none");
  columns.push_back({"/score/value", ColumnType::kF32, num_samples, 0, "1: the completion gives the answer, 0: not", "",
                     Extent::kSamples});
  if (classes) {
    columns.push_back({"/score/answer_class", ColumnType::kI32, num_samples, 0,
                       "number of the record's first completion whose answer counts as the same; -1: none was found",
                       "", Extent::kSamples});
  }
  if (unread)
    columns.push_back({"/score/unread", ColumnType::kU8, num_samples, 0, unread_comment(), "", Extent::kSamples});
  return columns;
}

std::vector<ColumnSpec> answer_columns(std::uint64_t num_samples, bool kl, bool flops) {
  using Extent = ColumnSpec::Extent;
  std::vector<ColumnSpec> columns = {
      {"/score/num_tokens", ColumnType::kU32, num_samples, 0, "of the completion", "tokens", Extent::kSamples}};
  if (kl)
    columns.push_back({"/score/guide_kl", ColumnType::kF32, num_samples, 0,
                       "KL(guided || reference) of the completion, the sum over its tokens", "nats", Extent::kSamples});
  if (flops)
    columns.push_back({"/score/flops", ColumnType::kF32, num_samples, 0,
                       "of the products that wrote the completion, its share of the prompt's included", "FLOP",
                       Extent::kSamples});
  return columns;
}

namespace {

bool has_scores(const ResultsReader& file, FaultList& faults) {
  const auto is_f32 = [](const ColumnSpec* column) {
    return column->type == ColumnType::kF32 && column->extent == ColumnSpec::Extent::kSamples;
  };
  const ColumnSpec* const value = file.find("/score/value");
  bool right = value != nullptr && is_f32(value);
  for (const char* const path : {"/score/guide_kl", "/score/flops"})
    right = right && (file.find(path) == nullptr || is_f32(file.find(path)));
  if (!right)
    faults.add("dataset /score/value is missing, or it, /score/guide_kl or /score/flops is not f32, one row a sample");
  const ColumnSpec* const unread = file.find("/score/unread");
  if (unread == nullptr || (unread->type == ColumnType::kU8 && unread->width == 0)) return right;
  faults.add("dataset /score/unread is not u8, one row a sample");
  return false;
}

void check_scores(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  const std::uint64_t width = std::max<std::uint64_t>(1, file.find("/score/value")->width);
  std::vector<float> values(unit.samples.size() * width);
  file.read("/score/value", unit.samples.begin, std::as_writable_bytes(std::span(values)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]))
      faults.add("unit {}: the score of sample {} is {}", unit.index, unit.samples.begin + i / width, values[i]);
  }
  if (file.find("/score/unread") != nullptr) {
    for (const std::uint8_t one : file.rows<std::uint8_t>("/score/unread", unit.samples.begin, unit.samples.size())) {
      if (one >= kNumUnread)
        faults.add("unit {}: a text was not compared for reason {}, which is none", unit.index, one);
    }
  }
  for (const auto& [path, name] : {std::pair("/score/guide_kl", "KL"), std::pair("/score/flops", "cost")}) {
    if (file.find(path) == nullptr) continue;
    for (const float one : file.rows<float>(path, unit.samples.begin, unit.samples.size())) {
      if (!std::isfinite(one)) faults.add("unit {}: the {} of a text is {}", unit.index, name, one);
    }
  }
}

}  // namespace

const ResultsSchema kScoreSchema = {"magister.score", 1, has_scores, nullptr, check_scores};

}  // namespace magister
