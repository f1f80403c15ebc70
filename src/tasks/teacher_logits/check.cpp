// Checks the rows of a teacher from the file alone: order, range and mass of the kept entries, and NaN in the last row
// of each sample and in no other row. It also checks the alignment: row i predicts token i+1, so if that token is among
// the kept entries of row i, its log-probability is target_logprob. A file that is shifted by one row breaks this rule
// in nearly every row.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "magister/core/error.h"
#include "magister/core/utf8.h"
#include "tasks/teacher_logits/columns.h"
#include "tasks/teacher_logits/encoding.h"

namespace magister {
namespace {

// Log-probabilities are differences of rounded numbers: that of a token with probability near 1 may be 1e-6 instead of
// 0.
constexpr float kRowSlack = 1e-3f;

// Consecutive rows of a unit in memory, by column.
class RowWindow {
 public:
  explicit RowWindow(const ResultsReader& file)
      : file_(file), rows_(file), type_(file.find(teacher_column::kTopLogprob)->type), k_(rows_.encoding().top_k) {}

  std::uint64_t rows_a_window() const { return std::max<std::uint64_t>(1, (1 << 20) / (k_ * 8)); }

  // Reads rows [begin, end), and the token after them if it belongs to the unit.
  void load(std::uint64_t begin, std::uint64_t end, std::uint64_t unit_end) {
    begin_ = begin;
    read(Column<TokenId>{"/tokens/id"}, begin, std::min(end + 1, unit_end), ids_);
    rows_.read_top(begin, end - begin, top_ids_, top_logprobs_);
    if (draws() > 0) rows_.read_draws(begin, end - begin, drawn_);
    read(teacher_column::kLogsumexp, begin, end, logsumexp_);
    read(teacher_column::kTargetLogprob, begin, end, target_);
    read(teacher_column::kEntropy, begin, end, entropy_);
    read(teacher_column::kTailMass, begin, end, tail_mass_);
    if (file_.find("/tokens/assistant") != nullptr)
      read(Column<std::uint8_t>{"/tokens/assistant"}, begin, std::min(end + 1, unit_end), assistant_);
  }

  // Checks a row. row: counted from the begin of the file; last: it is the last row of its sample; vocabulary: 0:
  // unknown.
  void check(std::uint64_t row, bool last, std::uint64_t vocabulary, const std::string& where,
             FaultList& faults) const {
    const std::size_t i = row - begin_;
    if (!assistant_.empty() && (last || assistant_[i + 1] == 0)) return check_empty(row, where, faults);
    const std::int32_t* ids = top_ids_.data() + i * k_;
    const float* logprobs = top_logprobs_.data() + i * k_;
    const auto outside = [&](std::int32_t id) {
      return id < 0 || (vocabulary > 0 && static_cast<std::uint64_t>(id) >= vocabulary);
    };
    if (outside(ids_[i])) faults.add("{}, row {}: token id {} is not a token", where, row, ids_[i]);
    double mass = 0;
    for (std::size_t j = 0; j < k_; ++j) {
      if (outside(ids[j])) faults.add("{}, row {}: entry {} has id {}, which is not a token", where, row, j, ids[j]);
      if (!(logprobs[j] <= kRowSlack))
        faults.add("{}, row {}: entry {} has log-probability {}", where, row, j, logprobs[j]);
      mass += std::exp(static_cast<double>(logprobs[j]));
      if (j == 0) continue;
      // Different numbers may be equal after rounding to f16, so only ties in f32 are known to be ties.
      const bool tie_in_order = type_ == ColumnType::kF16 || logprobs[j] != logprobs[j - 1] || ids[j] > ids[j - 1];
      if (!(logprobs[j] <= logprobs[j - 1]) || !tie_in_order) {
        faults.add("{}, row {}: entries {} and {} are out of order (ids {} {}, log-probabilities {} {})", where, row,
                   j - 1, j, ids[j - 1], ids[j], logprobs[j - 1], logprobs[j]);
      }
    }
    if (draws() > 0) check_draws(row, i, vocabulary, where, faults);
    check_whole(row, i, mass, where, faults);
    check_target(row, i, last, where, faults);
  }

 private:
  template <typename T>
  void read(const Column<T>& column, std::uint64_t begin, std::uint64_t end, std::vector<T>& values) {
    values = file_.rows(column, begin, end - begin);
  }

  // Checks a row that must not be scored.
  void check_empty(std::uint64_t row, const std::string& where, FaultList& faults) const {
    const std::size_t i = row - begin_;
    bool empty =
        std::isnan(logsumexp_[i]) && std::isnan(target_[i]) && std::isnan(entropy_[i]) && std::isnan(tail_mass_[i]);
    for (std::size_t j = i * k_; j < (i + 1) * k_; ++j)
      empty = empty && top_ids_[j] == -1 && std::isnan(top_logprobs_[j]);
    if (!empty) faults.add("{}, row {}: its next token is not the assistant's, but the row is not empty", where, row);
  }

  std::uint64_t draws() const { return rows_.encoding().draws; }

  // Checks that draws are tokens outside the kept entries, in ascending order.
  void check_draws(std::uint64_t row, std::size_t i, std::uint64_t vocabulary, const std::string& where,
                   FaultList& faults) const {
    const std::int32_t* ids = top_ids_.data() + i * k_;
    const std::int32_t* drawn = drawn_.data() + i * draws();
    for (std::uint64_t d = 0; d < draws() && tail_mass_[i] > 0; ++d) {
      const bool kept = std::find(ids, ids + k_, drawn[d]) != ids + k_;
      const bool outside = vocabulary > 0 && static_cast<std::uint64_t>(drawn[d]) >= vocabulary;
      // A tail_mass of about 1e-6 may be rounding: then there may be no token outside the kept entries, and a draw may
      // be one of them.
      if (outside || (kept && tail_mass_[i] > kRowSlack) || (d > 0 && drawn[d] < drawn[d - 1])) {
        faults.add("{}, row {}: draw {} has id {}, which is no token, a kept one or out of order", where, row, d,
                   drawn[d]);
      }
    }
  }

  void check_whole(std::uint64_t row, std::size_t i, double mass, const std::string& where, FaultList& faults) const {
    if (!std::isfinite(logsumexp_[i])) faults.add("{}, row {}: logsumexp is {}", where, row, logsumexp_[i]);
    if (!(std::isfinite(entropy_[i]) && entropy_[i] >= -kRowSlack))
      faults.add("{}, row {}: entropy is {}", where, row, entropy_[i]);
    const double tail = tail_mass_[i];
    // An f16 has 11 bits: a log-probability near -16 has an error up to 0.008, which is also the relative error of p.
    const double tolerance = type_ == ColumnType::kF16 ? 1e-2 : 1e-3;
    if (!(tail >= -kRowSlack && tail <= 1 + kRowSlack)) {
      faults.add("{}, row {}: tail_mass is {}", where, row, tail);
    } else if (!(std::abs(mass + tail - 1) <= tolerance)) {
      faults.add("{}, row {}: the kept entries have mass {:.6f} and the tail {:.6f}, which is not 1 together", where,
                 row, mass, tail);
    }
  }

  void check_target(std::uint64_t row, std::size_t i, bool last, const std::string& where, FaultList& faults) const {
    if (std::isnan(target_[i]) != last) {
      faults.add("{}, row {}: target_logprob is {} and the row is {}its sample's last", where, row, target_[i],
                 last ? "" : "not ");
      return;
    }
    if (last) return;
    const std::span<const std::int32_t> ids(top_ids_.data() + i * k_, k_);
    const std::span<const float> logprobs(top_logprobs_.data() + i * k_, k_);
    if (target_agrees(ids, logprobs, type_, ids_[i + 1], target_[i])) return;
    const auto found = std::find(ids.begin(), ids.end(), ids_[i + 1]);
    if (found != ids.end()) {
      faults.add(
          "{}, row {}: its next token {} has log-probability {} as a kept entry and {} as target (rows are shifted, or "
          "one of the two is damaged)",
          where, row, *found, logprobs[static_cast<std::size_t>(found - ids.begin())], target_[i]);
    } else {
      faults.add(
          "{}, row {}: its next token {} has target_logprob {}, more than the last kept entry's {}, but is not kept",
          where, row, ids_[i + 1], target_[i], logprobs.back());
    }
  }

  const ResultsReader& file_;
  TeacherRows rows_;
  ColumnType type_;
  std::uint64_t k_;
  std::uint64_t begin_ = 0;
  std::vector<std::int32_t> ids_, top_ids_, drawn_;
  std::vector<std::uint8_t> assistant_;  // empty: every row is scored
  std::vector<float> top_logprobs_, logsumexp_, target_, entropy_, tail_mass_;
};

std::uint64_t number_or_zero(const ResultsReader& file, const char* name) {
  return find_attribute(file.attributes(), name) == nullptr ? 0 : file.number(name);
}

bool check_teacher_columns(const ResultsReader& file, FaultList& faults) {
  using namespace teacher_column;
  const std::uint64_t before = faults.count();
  const auto require = [&](const auto& wanted, bool wide, std::initializer_list<ColumnType> types) {
    const ColumnSpec* const column = file.find(wanted);
    const bool fits = column != nullptr && std::find(types.begin(), types.end(), column->type) != types.end() &&
                      column->extent == wanted.extent && (column->width > 0) == wide;
    if (!fits) faults.add("dataset {} is missing or has another type or shape than teacher logits have", wanted.path);
  };
  require(Column<std::string>{"/samples/key"}, true, {ColumnType::kUtf8});
  require(Column<std::uint64_t>{"/samples/source_index"}, false, {ColumnType::kU64});
  require(Column<TokenId>{"/tokens/id", "", "", kRows}, false, {ColumnType::kI32});
  require(kTopLogprob, true, {ColumnType::kF32, ColumnType::kF16});
  for (const Column<float>& column : {kLogsumexp, kTargetLogprob, kEntropy, kTailMass})
    require(column, false, {ColumnType::kF32});
  if (faults.count() != before) return false;
  try {
    TeacherEncoding::of(file);
  } catch (const Error& error) {
    faults.add("{}", error.what());
  }
  return faults.count() == before;
}

void check_teacher_samples(const ResultsReader& file, FaultList& faults) {
  const std::uint64_t n = file.num_samples();
  std::uint64_t expected = number_or_zero(file, "slice_begin"), sample = 0;
  bool sound = true;
  file.for_each_piece("/samples/source_index", {0, n}, [&](std::uint64_t, std::span<const std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size() && sound; at += 8, ++sample) {
      std::uint64_t value;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      // A record has one sample, or several consecutive windows.
      sound = value == expected || (sample > 0 && value + 1 == expected);
      if (!sound) faults.add("/samples/source_index[{}] is {}, but record {} comes next", sample, value, expected);
      expected = value + 1;
    }
  });
  if (sound && find_attribute(file.attributes(), "slice_end") != nullptr && expected != file.number("slice_end")) {
    faults.add("the samples end before record {}, the slice at {}", expected, file.number("slice_end"));
  }
  const std::size_t width = file.find("/samples/key")->width;
  file.for_each_piece("/samples/key", {0, n}, [&](std::uint64_t row, std::span<const std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += width, ++row) {
      const std::string_view padded(reinterpret_cast<const char*>(bytes.data()) + at, width);
      const std::string_view text = padded.substr(0, padded.find_last_not_of('\0') + 1);
      if (find_invalid_utf8(text) != text.size())
        faults.add("/samples/key[{}] is not valid UTF-8: {}", row, printable(text, 60));
    }
  });
}

void check_teacher_rows(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  const std::uint64_t vocabulary = number_or_zero(file, "vocab_size");
  const auto offset = file.rows<std::uint64_t>("/samples/offset", unit.samples.begin, unit.samples.size() + 1);
  const std::string where = fmt::format("unit {}", unit.index);
  RowWindow window(file);
  std::size_t sample = 0;
  for (std::uint64_t begin = unit.rows.begin; begin < unit.rows.end; begin += window.rows_a_window()) {
    const std::uint64_t end = std::min(begin + window.rows_a_window(), unit.rows.end);
    window.load(begin, end, unit.rows.end);
    for (std::uint64_t row = begin; row < end; ++row) {
      while (offset[sample + 1] <= row) ++sample;
      window.check(row, row + 1 == offset[sample + 1], vocabulary, where, faults);
    }
  }
}

// DistillKit's: its decompress_to_sparse() accepts rows of input_ids, token_ids and top_values as they are.
constexpr TableName kNamesOfTrainers[] = {{teacher_column::kTopId.path, "token_ids"},
                                          {teacher_column::kTopLogprob.path, "top_values"}};

}  // namespace

constinit const ResultsSchema kTeacherLogitsSchema = {
    .format = "magister.teacher_logits",
    .columns = check_teacher_columns,
    .samples = check_teacher_samples,
    .rows = check_teacher_rows,
    .exported = {.parquet_names = kNamesOfTrainers, .decoded = decoded_ids}};

}  // namespace magister
