// See answers.h.
#include "tasks/score/answers.h"

#include <algorithm>
#include <filesystem>

#include "magister/run/earlier_tasks.h"
#include "magister/run/shard_model.h"
#include "tasks/score/columns.h"

namespace magister {

ScoredAnswers::ScoredAnswers(const ScoreConfig& config, const TaskInputs& inputs) : config_(config), inputs_(inputs) {
  const Task* const maker = require_results(inputs.context, config.answers_place, config.answers, "generate");
  if (maker != nullptr && !inputs.data_is_placeholder)
    check_answered_records(inputs.context, config.answers_place, *maker, config.dataset, inputs.dataset);
}

std::string ScoredAnswers::path() const {
  return results_path_of(inputs_.context, config_.answers, "generate", config_.answers_place);
}

bool ScoredAnswers::exist() const { return std::filesystem::exists(path()); }

void ScoredAnswers::open() {
  texts_.emplace(path(), config_.dataset, inputs_.dataset);
  texts_->check(inputs_.context.world, inputs_.dataset);
}

Attributes ScoredAnswers::identity() const {
  Attributes attributes;
  add_results_digests(inputs_.context, "answers", "", path(), attributes);
  return attributes;
}

std::vector<std::string> ScoredAnswers::of(const Record& record) const {
  return texts_ ? texts_->of(record) : std::vector<std::string>{""};
}

std::vector<WrittenText> ScoredAnswers::written(const Record& record) const {
  std::vector<WrittenText> texts;
  for (std::string& text : of(record)) texts.push_back({std::move(text), {}});
  if (!texts_) return texts;
  std::vector<std::vector<TokenId>> ids = texts_->tokens_of(record);
  for (std::size_t i = 0; i < texts.size(); ++i) texts[i].ids = std::move(ids[i]);
  return texts;
}

std::vector<ColumnSpec> ScoredAnswers::specs(std::uint64_t num_samples) const {
  return answer_columns(num_samples, texts_ && texts_->guided(), texts_ && texts_->has_flops());
}

void ScoredAnswers::add(const Record& record, IndexRange texts, Columns& columns) const {
  for (std::uint64_t i = texts.begin; i < texts.end; ++i) {
    columns.num_tokens.push_back(static_cast<std::uint32_t>(texts_->num_tokens(record, i)));
    if (texts_->guided()) columns.guide_kl.push_back(static_cast<float>(texts_->guide_kl(record, i)));
    if (texts_->has_flops()) columns.flops.push_back(static_cast<float>(texts_->flops(record, i)));
  }
}

void ScoredAnswers::append(const Columns& columns, std::vector<ColumnBytes>& to) const {
  to.push_back(samples_column(score_column::kNumTokens, columns.num_tokens));
  if (texts_->guided()) to.push_back(samples_column(score_column::kGuideKl, columns.guide_kl));
  if (texts_->has_flops()) to.push_back(samples_column(score_column::kFlops, columns.flops));
}

void for_records_of(const Unit& unit, std::uint64_t group, const Dataset& dataset,
                    const std::function<void(const Record&, IndexRange)>& body) {
  const std::uint64_t first = dataset.records().begin;
  std::uint64_t sample = unit.samples.begin;
  dataset.for_each({first + sample / group, first + (unit.samples.end + group - 1) / group}, [&](Record&& record) {
    const std::uint64_t begin = sample % group, count = std::min(group - begin, unit.samples.end - sample);
    body(record, {begin, begin + count});
    sample += count;
  });
}

}  // namespace magister
