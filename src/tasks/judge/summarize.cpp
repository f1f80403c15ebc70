// The file holds the tokens of the judged prompts: a record is the one that was judged if it gives the same tokens.
#include "tasks/judge/summarize.h"

#include <algorithm>
#include <variant>

#include "magister/io/results/identity.h"
#include "magister/run/earlier_tasks.h"
#include "magister/run/run_log.h"
#include "magister/runtime/checkpoint.h"
#include "magister/runtime/model_hash.h"
#include "magister/tasks/generate/record_answers.h"
#include "magister/tasks/judge/prompts.h"
#include "tasks/judge/report.h"
#include "tasks/judge/verdicts_file.h"

namespace magister {
namespace {

bool has_attribute(const VerdictsFile& file, const char* name, const AttributeValue& value) {
  const AttributeValue* const found = file.attribute(name);
  return found != nullptr && *found == value;
}

void check_same_prompts(const VerdictsFile& file, const std::string& path, const JudgePrompts& prompts,
                        const Dataset& dataset) {
  const IndexRange slice = dataset.records();
  const std::pair<const char*, AttributeValue> wanted[] = {{"prompt_sha256", prompts.sha256()},
                                                           {"samples_a_text", prompts.group()},
                                                           {"slice_begin", slice.begin},
                                                           {"slice_end", slice.end}};
  for (const auto& [name, value] : wanted) {
    MAGISTER_CHECK(has_attribute(file, name, value), ExitCode::kData,
                   "{}: was made by another experiment ({} differs; its summary would describe other prompts); name "
                   "the experiment that made it",
                   printable(path), name);
  }
}

// The rows of the file were decided with these keys, so a summary with other values would be wrong.
void check_same_rules(const VerdictsFile& file, const std::string& path, const std::string& experiment) {
  const AttributeValue* const made_by = file.attribute("experiment");
  const auto* const text = made_by == nullptr ? nullptr : std::get_if<std::string>(made_by);
  if (text == nullptr) return;
  for (const std::string& key : differing_keys(*text, experiment, {"in it", "here", ""})) {
    MAGISTER_CHECK(
        !key.starts_with("low_mass ") && !key.starts_with("combine "), ExitCode::kData,
        "{}: was made by another experiment: {} (its rows are decided already; only `label` may be another); "
        "name the experiment that made it, or run this one under another name",
        printable(path), key);
  }
}

// Compares every record's prompts with the tokens that were judged.
void check_same_records(const VerdictsFile& file, const std::string& path, const JudgePrompts& prompts,
                        const Dataset& dataset, const RecordAnswers* answers) {
  std::uint64_t sample = 0;
  dataset.for_each(dataset.records(), [&](Record&& record) {
    const std::vector<std::vector<TokenId>> made =
        prompts.encode(record, answers == nullptr ? std::vector<std::string>() : answers->of(record));
    for (const std::vector<TokenId>& prompt : made) {
      std::uint64_t rows[2] = {0, 0};
      bool same = sample < file.num_samples();
      if (same) file.read_rows("/samples/offset", sample, std::as_writable_bytes(std::span(rows)));
      same = same && rows[0] <= rows[1] && rows[1] - rows[0] == prompt.size();
      std::vector<TokenId> judged(prompt.size());
      if (same) file.read_rows("/tokens/id", rows[0], std::as_writable_bytes(std::span(judged)));
      MAGISTER_CHECK(
          same && judged == prompt, ExitCode::kData,
          "{}: is not the record that was judged as number {} (its prompt in {} is another; its label would be "
          "compared with another record's verdict); give the data that was judged, with changed labels at most",
          record.where, record.source_index, printable(path));
      ++sample;
    }
  });
  MAGISTER_CHECK(sample == file.num_samples(), ExitCode::kData,
                 "{}: holds {} judged prompts, the data gives {} (they are not the same records); give the "
                 "data that was judged",
                 printable(path), file.num_samples(), sample);
}

}  // namespace

void summarize_judge(const RunContext& context, const JudgeConfig& config) {
  const std::string& path = context.results_path;
  MAGISTER_CHECK(ResultsFile::state_on_disk(path) == ResultsFile::State::kComplete, ExitCode::kData,
                 "{}: is not complete (a summary covers all verdicts); finish its run first", printable(path));
  const VerdictsFile file(path);
  file.check(context.world);
  Checkpoint checkpoint(config.model);
  const Dataset dataset = Dataset::open(context.world, config.dataset);
  const JudgePrompts prompts(config, checkpoint);
  check_same_prompts(file, path, prompts, dataset);
  check_same_rules(file, path, context.identity_yaml);
  std::optional<RecordAnswers> answers;
  const std::string answers_path =
      config.answers.empty() ? "" : results_path_of(context, config.answers, "generate", config.answers_place);
  if (!answers_path.empty()) {
    answers.emplace(answers_path, config.dataset, dataset);
    answers->check(context.world, dataset);
  }
  const bool same_bytes =
      has_attribute(file, "dataset_sha256", dataset.sha256()) &&
      (!answers || has_attribute(file, "answers_sha256", file_sha256(answers_path, context.stop_poll())));
  if (!same_bytes) check_same_records(file, path, prompts, dataset, answers ? &*answers : nullptr);
  const auto read = [&](const char* column, std::uint64_t first, std::span<std::byte> data) {
    file.read_rows(column, first, data);
  };
  write_judge_summary({.config = config,
                       .prompts = prompts,
                       .dataset = dataset,
                       .read = read,
                       .num_samples = file.num_samples(),
                       .answers = answers ? &*answers : nullptr,
                       .results_path = path,
                       .log = context.log,
                       .poll = context.stop_poll()});
}

}  // namespace magister
