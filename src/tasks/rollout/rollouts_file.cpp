// Every length comes from the file, so it is checked against its column's width before it is used.
#include "magister/tasks/rollout/rollouts_file.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "magister/core/error.h"
#include "magister/run/unit_samples.h"
#include "magister/tasks/score/unread_counts.h"
#include "tasks/rollout/columns.h"

namespace magister {
namespace {

constexpr ColumnNames kNamesOfRollouts[] = {
    {.path = rollout_column::kFinishReason.path, .names = "stop,length"},
    {.path = rollout_column::kPreferred.path, .names = "lost,won,not_compared"}};

// All columns have one row per record; only prompts have rows per token.
std::vector<ColumnSpec> own_columns(const RolloutShape& shape) {
  using namespace rollout_column;
  const std::uint64_t R = shape.num_records, texts = shape.cuts * shape.n;
  std::vector<ColumnSpec> columns = {
      kRollInId.spec(R, shape.slots),   kRollInLength.spec(R),     kCut.spec(R, shape.cuts),
      kId.spec(R, texts * shape.slots), kLength.spec(R, texts),    kFinishReason.spec(R, texts),
      kReward.spec(R, texts),           kPreferred.spec(R, texts), kMeanReward.spec(R)};
  if (shape.unread) columns.push_back(kUnread.spec(R, texts, unread_comment()));
  return columns;
}

// Describes an impossible value; empty if there is none.
std::string fault_of(const Rollouts& all, std::uint64_t n) {
  for (const std::uint32_t cut : all.cut) {
    if (cut >= all.roll_in.size())
      return fmt::format("a cut keeps {} of the roll-in's {} tokens, and at least one is written anew", cut,
                         all.roll_in.size());
  }
  for (std::size_t i = 0; i < all.continuations.size(); ++i) {
    const Continuation& one = all.continuations[i];
    if (one.tokens.empty()) return fmt::format("continuation {} has no token", i);
    if (!std::isfinite(one.reward)) return fmt::format("the reward of continuation {} is {}", i, one.reward);
    if (static_cast<std::size_t>(one.unread) >= kNumUnread)
      return fmt::format("continuation {} was not compared for reason {}", i, static_cast<int>(one.unread));
    if (one.finish_reason > 1) return fmt::format("the finish_reason of continuation {} is {}", i, one.finish_reason);
    const std::size_t in_cut = i % n, other = i - in_cut + (in_cut ^ 1);
    const auto other_is = [&](Preferred preferred) {
      return (in_cut ^ 1) < n && all.continuations[other].preferred == preferred;
    };
    const bool right = one.preferred == Preferred::kNotCompared ? (in_cut ^ 1) >= n
                       : one.preferred == Preferred::kWon       ? other_is(Preferred::kLost)
                                                                : other_is(Preferred::kWon);
    if (!right)
      return fmt::format("continuation {} has preference {} beside its neighbour's", i,
                         static_cast<int>(one.preferred));
  }
  return "";
}

RolloutShape shape_of(const ResultsReader& file) {
  RolloutShape shape;
  shape.num_records = file.num_samples();
  const auto width = [&](const auto& column) { return std::max<std::uint64_t>(1, file.find(column)->width); };
  shape.slots = width(rollout_column::kRollInId);
  shape.cuts = width(rollout_column::kCut);
  shape.n = width(rollout_column::kLength) / shape.cuts;
  shape.unread = file.find(rollout_column::kUnread) != nullptr;
  return shape;
}

// Checks the types of the columns, and that their widths agree.
std::optional<std::string> fault_of_columns(const ResultsReader& file) {
  RolloutShape any;
  any.unread = file.find(rollout_column::kUnread) != nullptr;
  for (const ColumnSpec& wanted : own_columns(any)) {
    const ColumnSpec* const column = file.find(wanted.path);
    if (column == nullptr || column->type != wanted.type || column->extent != wanted.extent)
      return fmt::format("dataset {} is missing or has another type than rollouts have", wanted.path);
  }
  const RolloutShape shape = shape_of(file);
  for (const ColumnSpec& wanted : own_columns(shape)) {
    const std::uint64_t width = file.find(wanted.path)->width;
    if (std::max<std::uint64_t>(1, width) != std::max<std::uint64_t>(1, wanted.width))
      return fmt::format("dataset {} has a width of {}, and the others ask for {}", wanted.path, width, wanted.width);
  }
  return std::nullopt;
}

// A length beyond the slots is reported in `fault`; the text is then read as empty.
Rollouts read_rollouts(const ResultsReader& file, const RolloutShape& shape, std::uint64_t record, std::string& fault) {
  const std::uint64_t texts = shape.cuts * shape.n, slots = shape.slots;
  const auto taken = [&](const std::vector<TokenId>& ids, std::uint64_t first, std::uint64_t length) {
    if (length > slots) {
      fault = fmt::format("a text has {} tokens in {} slots", length, slots);
      length = 0;
    }
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
    return std::vector<TokenId>(begin, begin + static_cast<std::ptrdiff_t>(length));
  };
  Rollouts all;
  all.roll_in = taken(file.rows(rollout_column::kRollInId, record, 1, slots), 0,
                      file.rows(rollout_column::kRollInLength, record, 1)[0]);
  all.cut = file.rows(rollout_column::kCut, record, 1, shape.cuts);
  const auto ids = file.rows(rollout_column::kId, record, 1, texts * slots);
  const auto length = file.rows(rollout_column::kLength, record, 1, texts);
  const auto reason = file.rows(rollout_column::kFinishReason, record, 1, texts);
  const auto reward = file.rows(rollout_column::kReward, record, 1, texts);
  const auto preferred = file.rows(rollout_column::kPreferred, record, 1, texts);
  const auto unread =
      shape.unread ? file.rows(rollout_column::kUnread, record, 1, texts) : std::vector<std::uint8_t>(texts, 0);
  for (std::uint64_t i = 0; i < texts; ++i) {
    if (preferred[i] > 2) fault = fmt::format("continuation {} has preference {}", i, preferred[i]);
    all.continuations.push_back({taken(ids, i * slots, length[i]), reason[i], reward[i],
                                 static_cast<Preferred>(preferred[i]), static_cast<Unread>(unread[i])});
  }
  if (fault.empty()) fault = fault_of(all, shape.n);
  return all;
}

bool check_columns(const ResultsReader& file, FaultList& faults) {
  const std::optional<std::string> fault = fault_of_columns(file);
  if (fault) faults.add("{}", *fault);
  return !fault;
}

void check_records(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  const RolloutShape shape = shape_of(file);
  for (std::uint64_t record = unit.samples.begin; record < unit.samples.end; ++record) {
    std::string fault;
    const Rollouts all = read_rollouts(file, shape, record, fault);
    const auto negative = [](const std::vector<TokenId>& ids) {
      return std::any_of(ids.begin(), ids.end(), [](TokenId id) { return id < 0; });
    };
    if (fault.empty() && (negative(all.roll_in) || std::any_of(all.continuations.begin(), all.continuations.end(),
                                                               [&](const auto& one) { return negative(one.tokens); })))
      fault = "a token id is negative";
    if (!fault.empty()) faults.add("sample {}: {}", record, fault);
  }
}

}  // namespace

std::vector<ColumnSpec> rollout_columns(const RolloutShape& shape) {
  std::vector<ColumnSpec> columns =
      sample_columns(shape.num_records, shape.num_tokens, shape.key_bytes,
                     "rows of prompt i are offset[i] .. offset[i+1] of /tokens", "the prompts' tokens");
  for (ColumnSpec& column : own_columns(shape)) columns.push_back(std::move(column));
  return columns;
}

std::vector<ColumnBytes> rollout_rows(const Rollouts& rollouts, const RolloutShape& shape) {
  const std::uint64_t texts = shape.cuts * shape.n, slots = shape.slots;
  MAGISTER_ASSERT(rollouts.cut.size() == shape.cuts && rollouts.continuations.size() == texts &&
                  rollouts.roll_in.size() <= slots);
  std::vector<TokenId> roll_in = rollouts.roll_in, ids(texts * slots, 0);
  roll_in.resize(slots, 0);
  std::vector<std::uint32_t> lengths;
  std::vector<std::uint8_t> reasons, preferred, unread;
  std::vector<float> rewards;
  double sum = 0;
  for (std::size_t i = 0; i < texts; ++i) {
    const Continuation& one = rollouts.continuations[i];
    MAGISTER_ASSERT(one.tokens.size() <= slots);
    std::copy(one.tokens.begin(), one.tokens.end(), ids.begin() + static_cast<std::ptrdiff_t>(i * slots));
    lengths.push_back(static_cast<std::uint32_t>(one.tokens.size()));
    reasons.push_back(one.finish_reason);
    rewards.push_back(one.reward);
    preferred.push_back(static_cast<std::uint8_t>(one.preferred));
    unread.push_back(static_cast<std::uint8_t>(one.unread));
    sum += one.reward;
  }
  std::vector<ColumnBytes> rows = {
      samples_column(rollout_column::kRollInId, roll_in),
      samples_column(rollout_column::kRollInLength,
                     std::vector<std::uint32_t>{static_cast<std::uint32_t>(rollouts.roll_in.size())}),
      samples_column(rollout_column::kCut, rollouts.cut),
      samples_column(rollout_column::kId, ids),
      samples_column(rollout_column::kLength, lengths),
      samples_column(rollout_column::kFinishReason, reasons),
      samples_column(rollout_column::kReward, rewards),
      samples_column(rollout_column::kPreferred, preferred),
      samples_column(rollout_column::kMeanReward,
                     std::vector<float>{static_cast<float>(sum / static_cast<double>(texts))})};
  if (shape.unread) rows.push_back(samples_column(rollout_column::kUnread, unread));
  return rows;
}

RolloutsFile::RolloutsFile(const std::string& path) : file_(path), units_(file_) {
  MAGISTER_CHECK(file_.complete() && file_.text("format") == kRolloutSchema.format, ExitCode::kData,
                 "{}: is not a complete file of rollouts (there is nothing to learn from); run its rollout task first",
                 printable(path, 4096));
  const std::optional<std::string> fault = fault_of_columns(file_);
  MAGISTER_CHECK(!fault, ExitCode::kData, "{}: {} (the file was changed); use another file", printable(path, 4096),
                 *fault);
  shape_ = shape_of(file_);
}

std::vector<TokenId> RolloutsFile::prompt(std::uint64_t record) const {
  const auto offset = file_.rows<std::uint64_t>("/samples/offset", record, 2);
  MAGISTER_CHECK(offset[0] <= offset[1] && offset[1] - offset[0] < (1u << 30), ExitCode::kData,
                 "{}: the prompt of sample {} is at rows {} to {} (the file is damaged); use another file",
                 printable(path(), 4096), record, offset[0], offset[1]);
  return file_.rows<TokenId>("/tokens/id", offset[0], offset[1] - offset[0]);
}

Rollouts RolloutsFile::rollouts(std::uint64_t record) {
  units_.require(record);
  std::string fault;
  Rollouts all = read_rollouts(file_, shape_, record, fault);
  MAGISTER_CHECK(fault.empty(), ExitCode::kData, "{}: sample {}: {} (the file is damaged); use another file",
                 printable(path(), 4096), record, fault);
  return all;
}

constinit const ResultsSchema kRolloutSchema = {.format = "magister.rollout",
                                                .columns = check_columns,
                                                .rows = check_records,
                                                .exported = {.names = kNamesOfRollouts}};

}  // namespace magister
