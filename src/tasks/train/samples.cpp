// See samples.h. Row i has a label if token i + 1 is learnt. Marks restrict that: to tokens of the assistant, or in a
// distillation to tokens whose row the teacher scored.
#include "tasks/train/samples.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

#include "magister/core/error.h"
#include "magister/tasks/score/classified_token.h"
#include "tasks/train/objective.h"

namespace magister {
namespace {

template <typename T>
std::vector<T> rows(const ResultsFile& file, const char* column, std::uint64_t first, std::uint64_t count) {
  std::vector<T> values(count);
  file.read(column, first, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace

TrainingSamples::TrainingSamples(const ResultsFile& file, std::uint64_t num_samples, const TrainConfig& config)
    : file_(file),
      per_item_(config.samples_an_item()),
      has_labels_(!config.of_head()),
      marked_(config.objective().marks(config) != nullptr),
      offset_(rows<std::uint64_t>(file, "/samples/offset", 0, num_samples + 1)) {
  for (std::uint64_t i = 0; i < num_samples; ++i) {
    MAGISTER_CHECK(
        offset_[i] <= offset_[i + 1] && offset_[i + 1] - offset_[i] < (1u << 30), ExitCode::kData,
        "sample {} is at tokens {} to {} (the offsets of the working file are damaged); start over with --fresh", i,
        offset_[i], offset_[i + 1]);
    const auto length = static_cast<std::uint32_t>(offset_[i + 1] - offset_[i]);
    const auto marks = marked_ && length > 0 ? rows<std::uint8_t>(file, "/tokens/assistant", offset_[i], length)
                                             : std::vector<std::uint8_t>();
    const std::uint32_t labels = learnt_tokens(config, length, marks);
    labels_.push_back(labels);
    lengths_.push_back(labels > 0 ? length : 0);
  }
  for (std::uint64_t i = 0; i + per_item_ <= num_samples; i += per_item_) {
    const bool whole = per_item_ == 1 || (lengths_[i] > 0 && lengths_[i + 1] > 0);
    items_.push_back(per_item_ == 1 ? lengths_[i] : whole ? lengths_[i] + lengths_[i + 1] : 0);
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

std::uint64_t TrainingSamples::num_labels(const Samples& items) const {
  std::uint64_t sum = 0;
  for (const std::uint64_t sample : samples_of(items, per_item_)) sum += labels_[sample];
  return sum;
}

MicroBatch TrainingSamples::micro_batch(const Samples& items) const {
  std::vector<SampleTokens> sequences;
  for (const std::uint64_t sample : samples_of(items, per_item_)) {
    const std::uint32_t length = lengths_[sample];
    sequences.push_back({rows<TokenId>(file_, "/tokens/id", offset_[sample], length),
                         marked_ ? rows<std::uint8_t>(file_, "/tokens/assistant", offset_[sample], length)
                                 : std::vector<std::uint8_t>()});
  }
  return micro_batch_of(sequences, has_labels_);
}

MicroBatch micro_batch_of(std::span<const SampleTokens> sequences, bool has_labels) {
  MicroBatch batch;
  batch.tokens.cu_seqlens.push_back(0);
  for (const SampleTokens& sequence : sequences)
    batch.tokens.cu_seqlens.push_back(batch.tokens.cu_seqlens.back() + static_cast<std::int64_t>(sequence.ids.size()));
  const std::int64_t T = batch.tokens.cu_seqlens.back();
  batch.tokens.token_ids_T = at::empty({T}, at::kLong);
  batch.targets.labels_T = at::full({T}, -100, at::kLong);
  auto* ids = batch.tokens.token_ids_T.data_ptr<std::int64_t>();
  auto* labels = batch.targets.labels_T.data_ptr<std::int64_t>();
  for (const SampleTokens& sequence : sequences) {
    const std::vector<TokenId>& tokens = sequence.ids;
    const std::vector<std::uint8_t>& marks = sequence.assistant;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      *ids++ = tokens[t];
      if (has_labels && t + 1 < tokens.size() && (marks.empty() || marks[t + 1] != 0)) *labels = tokens[t + 1];
      ++labels;
    }
  }
  return batch;
}

std::vector<TokenId> TrainingSamples::tokens(std::uint64_t sample) const {
  return rows<TokenId>(file_, "/tokens/id", offset_[sample], lengths_[sample]);
}

void add_pairs(MicroBatch& batch, const Samples& items, TokenId pad_token_id, std::span<const double> references,
               std::span<const double> margins) {
  const auto* ids = batch.tokens.token_ids_T.const_data_ptr<std::int64_t>();
  const auto row = [&](std::size_t sequence) {
    const std::int64_t begin = batch.tokens.cu_seqlens[sequence], end = batch.tokens.cu_seqlens[sequence + 1];
    return begin + classified_token(std::span(ids + begin, ids + end), pad_token_id);
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    Pair& pair = batch.pairs.emplace_back();
    pair.chosen_row = row(2 * i);
    pair.rejected_row = row(2 * i + 1);
    if (!references.empty()) {
      pair.chosen_reference = references[2 * items[i]];
      pair.rejected_reference = references[2 * items[i] + 1];
    }
    if (!margins.empty()) pair.margin = margins[items[i]];
  }
}

std::vector<std::int64_t> TrainingSamples::marked_rows(std::uint64_t sample) const {
  const auto marks = rows<std::uint8_t>(file_, "/tokens/assistant", offset_[sample], lengths_[sample]);
  std::vector<std::int64_t> marked;
  for (std::size_t t = 1; t < marks.size(); ++t) {
    if (marks[t] != 0) marked.push_back(static_cast<std::int64_t>(t));
  }
  return marked;
}

std::string TrainingSamples::key(std::uint64_t item) const {
  std::string key(file_.row_bytes("/samples/key"), '\0');
  file_.read("/samples/key", item * per_item_, std::as_writable_bytes(std::span(key)));
  return printable(key.substr(0, key.find('\0')), 60);
}

}  // namespace magister
