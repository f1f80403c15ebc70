// See written_exam.h.
#include "tasks/exam/written_exam.h"

#include <algorithm>
#include <span>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"

namespace magister {
namespace {

// The rows of one objective in the running file.
class ObjectiveRows {
 public:
  ObjectiveRows(const ResultsFile& running, const ExamShape& shape, std::uint64_t sample)
      : shape_(shape),
        record_(read(running, Column<std::uint64_t>{"/samples/source_index"}, sample, 1)[0]),
        lengths_(read(running, exam_column::kSlotLength, sample, shape.rows())),
        reasons_(read(running, exam_column::kSlotReasons, sample, shape.rows())),
        states_(read(running, exam_column::kSlotState, sample, shape.rows())),
        bloom_(read(running, exam_column::kSlotBloom, sample, shape.rows())),
        near_(read(running, exam_column::kSlotNear, sample, shape.rows())),
        ids_(read(running, exam_column::kSlotId, sample, shape.rows() * shape.slots)),
        numbers_(read(running, exam_column::kSlotNumber, sample, shape.rows() * shape.numbers())) {
    const auto offset = [&](std::uint64_t of) {
      std::uint64_t row = 0;
      running.read("/samples/offset", of, std::as_writable_bytes(std::span(&row, 1)));
      return row;
    };
    const std::uint64_t begin = offset(sample), end = offset(sample + 1);
    MAGISTER_CHECK(begin <= end && end <= shape.num_tokens, ExitCode::kData,
                   "objective {} has rows {} to {} of {} (the running file is damaged); start over with --fresh",
                   sample, begin, end, shape.num_tokens);
    prompt_.resize(end - begin);
    if (!prompt_.empty()) running.read("/tokens/id", begin, std::as_writable_bytes(std::span(prompt_)));
  }

  std::uint64_t record() const { return record_; }
  const std::vector<TokenId>& prompt() const { return prompt_; }
  bool has(std::uint64_t row) const { return states_[row] != 0; }

  ItemVersion version(std::uint64_t row) const {
    MAGISTER_CHECK(lengths_[row] <= shape_.slots && states_[row] <= static_cast<std::uint8_t>(ExamState::kRejected),
                   ExitCode::kData,
                   "a version of {} tokens in {} slots with state {} (the running file is damaged); start over with "
                   "--fresh",
                   lengths_[row], shape_.slots, states_[row]);
    ItemVersion version;
    version.item = static_cast<std::uint32_t>(row / shape_.versions);
    version.attempt = static_cast<std::uint32_t>(row % shape_.versions);
    const auto first = ids_.begin() + static_cast<std::ptrdiff_t>(row * shape_.slots);
    version.tokens.assign(first, first + lengths_[row]);
    version.state = static_cast<ExamState>(states_[row]);
    version.reasons = reasons_[row];
    version.bloom = bloom_[row];
    version.near = near_[row];
    const auto number = numbers_.begin() + static_cast<std::ptrdiff_t>(row * shape_.numbers());
    version.numbers.assign(number, number + static_cast<std::ptrdiff_t>(shape_.numbers()));
    return version;
  }

 private:
  template <typename T>
  static std::vector<T> read(const ResultsFile& file, const Column<T>& column, std::uint64_t row, std::uint64_t width) {
    std::vector<T> values(width);
    file.read(column.path, row, std::as_writable_bytes(std::span(values)));
    return values;
  }

  const ExamShape& shape_;
  std::uint64_t record_;
  std::vector<std::uint32_t> lengths_, reasons_;
  std::vector<std::uint8_t> states_;
  std::vector<std::int32_t> bloom_, near_;
  std::vector<TokenId> ids_;
  std::vector<float> numbers_;
  std::vector<TokenId> prompt_;
};

ExamVersion complete(ItemVersion version, const ObjectiveRows& rows, const ExamObjective& objective,
                     const ExamTopic& topic, const ExamSetup& setup) {
  ExamVersion whole{rows.record(), std::move(version), {}, {}, {}};
  whole.asked = asked_item(setup.config, topic.passages.size(), rows.record(), whole.version.item);
  whole.version.text = setup.text_of_tokens(rows.prompt(), whole.version.tokens);
  whole.version.written = read_item(whole.version.text, whole.asked.form);
  whole.version.text = {};  // an exam may have a million versions
  if (whole.version.written) whole.item = whole.version.written->item;
  whole.item.kind = whole.asked.form.kind;
  whole.item.id = fmt::format("{}-{}", objective.number, whole.version.item + 1);
  if (whole.version.near >= 0) whole.repeats = fmt::format("{}-{}", objective.number, whole.version.near + 1);
  whole.item.objective_number = objective.number;
  whole.item.objective_text = objective.text;
  const ItemDifficulty measured = measured_difficulty(whole.version.number(ExamNumber::kBlind));
  whole.item.difficulty = measured == ItemDifficulty::kUnsaid ? whole.asked.difficulty : measured;
  whole.item.bloom = whole.version.bloom < 0 ? whole.asked.bloom : static_cast<BloomLevel>(1 + whole.version.bloom);
  if (whole.version.written) {
    const SourceChunk& cited = setup.chunks.at(topic.chunks.at(whole.version.written->passage));
    whole.item.cited = {cited.path, cited.number, cited.text};
    shuffle_choices(whole.item, setup.config.seed);
  }
  return whole;
}

}  // namespace

Exam WrittenExam::exam(const std::string& title) const {
  Exam exam;
  exam.title = title;
  for (const ExamVersion& one : versions) {
    if (one.version.state == ExamState::kAccepted) exam.items.push_back(one.item);
  }
  return exam;
}

WrittenExam read_written_exam(const ResultsFile& running, const ExamSetup& setup, const ExamShape& shape,
                              const StopPoll& poll) {
  WrittenExam exam;
  exam.objectives = shape.writes_objectives ? written_objectives(running, setup) : setup.objectives;
  for (std::uint64_t sample = 0; sample < shape.num_objectives; ++sample) {
    fail_point("task.pack.block");
    if (poll()) return {};
    const ObjectiveRows rows(running, shape, sample);
    const ExamObjective& objective = exam.objectives.at(rows.record());
    const ExamTopic topic = setup.topic(rows.record(), objective);
    for (std::uint64_t row = 0; row < shape.rows(); ++row) {
      if (rows.has(row)) exam.versions.push_back(complete(rows.version(row), rows, objective, topic, setup));
    }
  }
  return exam;
}

}  // namespace magister
