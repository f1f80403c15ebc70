// See data.h. Token i has a label when token i + 1 is learnt: of the assistant where only those are, of a distillation where the teacher's
// row i was scored.
#include "tasks/train/data.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

#include "magister/core/error.h"
#include "magister/tasks/score/classified_token.h"

namespace magister {
namespace {

template <typename T>
std::vector<T> rows(const ResultsFile& file, const char* column, std::uint64_t first, std::uint64_t count) {
  std::vector<T> values(count);
  file.read(column, first, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace

std::uint32_t learnt_tokens(const TrainConfig& config, std::uint64_t length, std::span<const std::uint8_t> assistant) {
  const Objective objective = config.objective();
  const bool all = objective == Objective::kReward || objective == Objective::kGrpo;  // of a prompt nothing is learnt
  if (length == 0) return 0;
  if (!config.marks()) return static_cast<std::uint32_t>(all ? length : length - 1);
  std::uint32_t learnt = 0;
  for (std::size_t t = 1; t < assistant.size(); ++t) learnt += assistant[t] != 0 ? 1 : 0;
  return learnt;
}

std::uint64_t samples_an_item(const TrainConfig& config) { return config.of_pairs() ? 2 : 1; }

void check_learns(const TrainConfig& config, std::uint64_t num_learnt, std::uint64_t num_items, std::uint64_t longest,
                  const std::string& teacher) {
  if (num_learnt > 0) return;
  MAGISTER_CHECK(!config.distills, ExitCode::kData,
                 "{}: none of the {} samples of {} has a row to learn from (the teacher scored none that a token "
                 "follows{}); check the teacher's file with `magister info`",
                 config.name, num_items, printable(teacher, 4096),
                 config.batches.max_length < longest ? ", or train.max_length cuts them off" : "");
  MAGISTER_CHECK(!config.of_pairs(), ExitCode::kData,
                 "{}: none of the {} pairs has tokens of both answers to learn from (with max_length {} prompts fill "
                 "it, or answers do not fit); raise train.max_length, or check the data set",
                 config.name, num_items, config.batches.max_length);
  fail(ExitCode::kData,
       "{}: none of the {} records has a token to learn from (one that follows another{}); look at the data set{}",
       config.name, num_items, config.assistant_only ? " and is the assistant's" : "",
       config.assistant_only
           ? ", train.max_length, which may cut the answers off, and whether the chat template writes "
             "answers as the model would (one with generation blocks, by model.chat_template, marks "
             "them itself)"
           : "");
}

TrainingData::TrainingData(const ResultsFile& file, std::uint64_t num_samples, const TrainConfig& config,
                           TeacherFile* teacher, TokenId pad_token_id)
    : file_(file),
      objective_(config.trainer.preference.objective),
      per_item_(samples_an_item(config)),
      marked_(config.marks()),
      teacher_(teacher),
      pad_token_id_(pad_token_id),
      offset_(rows<std::uint64_t>(file, "/samples/offset", 0, num_samples + 1)) {
  for (std::uint64_t i = 0; i < num_samples; ++i) {
    MAGISTER_CHECK(offset_[i] <= offset_[i + 1] && offset_[i + 1] - offset_[i] < (1u << 30), ExitCode::kData,
                   "sample {} stands at tokens {} to {} (the offsets of the working file are damaged); start over with "
                   "--fresh",
                   i, offset_[i], offset_[i + 1]);
    const auto length = static_cast<std::uint32_t>(offset_[i + 1] - offset_[i]);
    const auto marks = marked_ && length > 0 ? rows<std::uint8_t>(file, "/tokens/assistant", offset_[i], length)
                                             : std::vector<std::uint8_t>();
    const std::uint32_t labels = learnt_tokens(config, length, marks);
    labels_.push_back(labels);
    lengths_.push_back(labels > 0 ? length : 0);
  }
  for (std::uint64_t i = 0; i + per_item() <= num_samples; i += per_item()) {
    const bool whole = per_item() == 1 || (lengths_[i] > 0 && lengths_[i + 1] > 0);
    items_.push_back(per_item() == 1 ? lengths_[i] : whole ? lengths_[i] + lengths_[i + 1] : 0);
  }
}

namespace {

Samples samples_of(const Samples& items, std::uint64_t per_item) {
  Samples samples;
  for (const std::uint64_t item : items) {
    for (std::uint64_t i = 0; i < per_item; ++i) samples.push_back(item * per_item + i);
  }
  return samples;
}

}  // namespace

std::uint64_t TrainingData::num_labels(const Samples& items) const {
  std::uint64_t sum = 0;
  for (const std::uint64_t sample : samples_of(items, per_item())) sum += labels_[sample];
  return sum;
}

// Of a reward or value model no token has a label.
MicroBatch TrainingData::micro_batch(const Samples& items) const {
  const Samples samples = samples_of(items, per_item());
  MicroBatch batch;
  batch.tokens.cu_seqlens.push_back(0);
  for (const std::uint64_t sample : samples)
    batch.tokens.cu_seqlens.push_back(batch.tokens.cu_seqlens.back() + lengths_[sample]);
  const std::int64_t T = batch.tokens.cu_seqlens.back();
  batch.tokens.token_ids_T = at::empty({T}, at::kLong);
  batch.targets.labels_T = at::full({T}, -100, at::kLong);
  auto* ids = batch.tokens.token_ids_T.data_ptr<std::int64_t>();
  auto* labels = batch.targets.labels_T.data_ptr<std::int64_t>();
  const bool has_labels = objective_ != Objective::kReward && objective_ != Objective::kValue;
  for (const std::uint64_t sample : samples) {
    const std::uint32_t length = lengths_[sample];
    const auto tokens = rows<TokenId>(file_, "/tokens/id", offset_[sample], length);
    const auto marks =
        marked_ ? rows<std::uint8_t>(file_, "/tokens/assistant", offset_[sample], length) : std::vector<std::uint8_t>();
    for (std::uint32_t t = 0; t < length; ++t) {
      *ids++ = tokens[t];
      if (has_labels && t + 1 < length && (marks.empty() || marks[t + 1] != 0)) *labels = tokens[t + 1];
      ++labels;
    }
  }
  if (of_pairs()) add_pairs(items, batch);
  if (objective_ == Objective::kValue) add_values(samples, batch);
  if (teacher_ != nullptr) {
    std::vector<std::uint32_t> lengths;
    for (const std::uint64_t sample : samples) lengths.push_back(lengths_[sample]);
    batch.read_teacher = [this, samples, lengths = std::move(lengths)](HeadLossTargets& targets) {
      read_teacher_rows(*teacher_, samples, lengths, targets);
    };
  }
  return batch;
}

std::vector<TokenId> TrainingData::tokens(std::uint64_t sample) const {
  return rows<TokenId>(file_, "/tokens/id", offset_[sample], lengths_[sample]);
}

Pair pair_of(const TrainBatch& tokens, std::size_t number, TokenId pad_token_id) {
  const auto* ids = tokens.token_ids_T.const_data_ptr<std::int64_t>();
  const auto row = [&](std::size_t sequence) {
    const std::int64_t begin = tokens.cu_seqlens[sequence], end = tokens.cu_seqlens[sequence + 1];
    return begin + classified_token(std::span(ids + begin, ids + end), pad_token_id);
  };
  Pair pair;
  pair.chosen_row = row(2 * number);
  pair.rejected_row = row(2 * number + 1);
  return pair;
}

void TrainingData::add_pairs(const Samples& items, MicroBatch& batch) const {
  for (std::size_t i = 0; i < items.size(); ++i) {
    Pair& pair = batch.pairs.emplace_back(pair_of(batch.tokens, i, pad_token_id_));
    if (!references_.empty()) {
      pair.chosen_reference = references_[2 * items[i]];
      pair.rejected_reference = references_[2 * items[i] + 1];
    }
    if (!margins_.empty()) pair.margin = margins_[items[i]];
    if (marked_ && objective_ == Objective::kReward) {  // of a value model
      pair.chosen_row = batch.tokens.cu_seqlens[2 * i] + marked_rows(2 * items[i]).at(0);
      pair.rejected_row = batch.tokens.cu_seqlens[2 * i + 1] + marked_rows(2 * items[i] + 1).at(0);
    }
  }
}

// Of the sample's own tokens.
std::vector<std::int64_t> TrainingData::marked_rows(std::uint64_t sample) const {
  const auto marks = rows<std::uint8_t>(file_, "/tokens/assistant", offset_[sample], lengths_[sample]);
  std::vector<std::int64_t> marked;
  for (std::size_t t = 1; t < marks.size(); ++t) {
    if (marks[t] != 0) marked.push_back(static_cast<std::int64_t>(t));
  }
  return marked;
}

void TrainingData::add_values(const Samples& samples, MicroBatch& batch) const {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ValueText& text = batch.values.emplace_back(ValueText{marked_rows(samples[i]), value_labels_.at(samples[i])});
    for (std::int64_t& row : text.rows) row += batch.tokens.cu_seqlens[i];
  }
}

void read_teacher_rows(TeacherFile& teacher, const Samples& samples, const std::vector<std::uint32_t>& lengths,
                       HeadLossTargets& targets) {
  const std::int64_t T = targets.labels_T.size(0), W = teacher.width();
  targets.sampled = teacher.sampled();
  targets.teacher_vocab_size = teacher.vocab_size();
  targets.teacher_ids_TK = at::empty({T, W}, at::kInt);
  targets.teacher_logprobs_TK = at::empty({T, W}, at::kFloat);
  targets.teacher_tail_T = at::empty({T}, at::kFloat);
  targets.teacher_entropy_T = at::empty({T}, at::kFloat);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const TeacherSample rows = teacher.sample(samples[i]);
    const auto length = static_cast<std::int64_t>(lengths[i]);
    std::copy_n(rows.top_ids.begin(), length * W, targets.teacher_ids_TK.data_ptr<std::int32_t>() + row * W);
    std::copy_n(rows.top_logprobs.begin(), length * W, targets.teacher_logprobs_TK.data_ptr<float>() + row * W);
    std::copy_n(rows.tail_mass.begin(), length, targets.teacher_tail_T.data_ptr<float>() + row);
    std::copy_n(rows.entropy.begin(), length, targets.teacher_entropy_T.data_ptr<float>() + row);
    row += length;
  }
}

std::string TrainingData::key(std::uint64_t item) const {
  std::string key(file_.row_bytes("/samples/key"), '\0');
  file_.read("/samples/key", item * per_item(), std::as_writable_bytes(std::span(key)));
  return printable(key.substr(0, key.find('\0')), 60);
}

}  // namespace magister
