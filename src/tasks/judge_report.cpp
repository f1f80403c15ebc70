// Columns and labels -> rows -> summarize(); see judge_report.h.
#include "tasks/judge_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "magister/core/log.h"
#include "magister/io/results_texts.h"
#include "magister/run/chat_prompts.h"
#include "tasks/judge_summary.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::vector<std::string> names_of(const JudgePrompts& prompts) {
  std::vector<std::string> names;
  for (const VerdictClass& one : prompts.classes()) names.push_back(one.name);
  return names;
}

template <typename T>
std::vector<T> column(const JudgeReport& report, const char* path) {
  std::vector<T> values(report.num_samples);
  report.file.read(path, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<JudgedRow> rows_of(const JudgeReport& report) {
  const auto source = column<std::uint64_t>(report, "/samples/source_index");
  const auto verdict = column<std::int32_t>(report, "/judge/verdict");
  const auto log_odds = column<float>(report, "/judge/log_odds"), expected = column<float>(report, "/judge/expected");
  const auto parse = column<std::uint8_t>(report, "/judge/parse"), order = column<std::uint8_t>(report, "/judge/order");
  std::optional<ResultsTexts> texts;
  if (!report.answers_path.empty()) texts.emplace(report.answers_path);
  std::vector<JudgedRow> rows(report.num_samples);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    JudgedRow& row = rows[i];
    row.record = source[i];
    row.pair = i / report.prompts.orders();
    row.verdict = verdict[i];
    row.parse = parse[i];
    row.swapped = order[i] != 0;
    row.probability_first = 1.0 / (1.0 + std::exp(-static_cast<double>(log_odds[i])));
    row.expected = expected[i];
    if (!texts || report.prompts.orders() != 1) continue;
    row.likelihood = texts->mean_logprob(i / report.prompts.group());
    row.has_likelihood = true;
  }
  return rows;
}

// A person's verdict for the rows of each record; a pair's second order has it the other way round.
void add_labels(const JudgeReport& report, const std::vector<std::string>& names, std::vector<JudgedRow>& rows) {
  if (report.config.label_field.empty()) return;
  std::size_t row = 0;
  report.dataset.for_each(report.dataset.records(), [&](Record&& record) {
    const ordered_json value = record_field(record.text, report.config.label_field, record.where);
    const std::string label = value.is_string() ? value.get<std::string>() : value.dump();
    const auto found = std::find(names.begin(), names.end(), label);
    MAGISTER_CHECK(found != names.end(), ExitCode::kData, "{}: the label \"{}\" is no verdict (they are {}); mend the line or "
                   "remove `label`", record.where, printable(label, 40), fmt::join(names, ", "));
    const auto number = static_cast<std::int32_t>(found - names.begin());
    for (; row < rows.size() && rows[row].record == record.source_index; ++row) {
      rows[row].label = report.prompts.orders() == 2 && rows[row].swapped ? 1 - number : number;
    }
  }, report.poll);
}

// One row a text: what its prompts, orders and judges say together.
ordered_json combined_summary(const JudgeReport& report, const std::vector<std::string>& names, const std::vector<JudgedRow>& rows) {
  const auto combined = column<std::int32_t>(report, "/judge/combined");
  std::vector<JudgedRow> texts;
  std::uint64_t undecided = 0;
  for (std::size_t i = 0; i < rows.size(); i += report.prompts.group()) {
    JudgedRow text = rows[i];  // the first order: labels as given
    text.verdict = combined[i];
    text.parse = combined[i] < 0 ? 2 : 0;
    undecided += combined[i] < 0;
    texts.push_back(text);
  }
  ordered_json summary = summarize(texts, names, {});
  summary.erase("parse");
  summary["undecided"] = undecided;
  return summary;
}

}  // namespace

bool write_judge_summary(const JudgeReport& report) {
  const std::vector<std::string> names = names_of(report.prompts);
  std::vector<JudgedRow> rows = rows_of(report);
  add_labels(report, names, rows);
  if (report.poll()) return false;
  ordered_json summary = summarize(rows, names, {report.prompts.orders() == 2, report.config.mode == JudgeMode::kRubric});
  if (report.prompts.group() > 1 || !report.config.panel.empty()) summary["combined"] = combined_summary(report, names, rows);
  if (report.config.read == JudgeRead::kSubstring && report.config.method == JudgeMethod::kDecode) {
    // What scripts with this rule report: a reply without a verdict counts as the last one, "no".
    const auto first = std::count_if(rows.begin(), rows.end(), [](const JudgedRow& row) { return row.verdict == 0; });
    summary["compat_share_of_" + names.front()] = rows.empty() ? ordered_json() : ordered_json(static_cast<double>(first) / static_cast<double>(rows.size()));
  }
  const std::string path = fs::path(report.results_path).replace_extension(".summary.json").string(), creating = path + ".creating";
  std::ofstream(creating) << summary.dump(2) << "\n";
  MAGISTER_CHECK(std::rename(creating.c_str(), path.c_str()) == 0, ExitCode::kInputOutput, "{}: cannot be written (the summary is "
                 "lost, the verdicts are not); make room and run the command again", printable(path));
  report.log.event("summary", summary);
  log_info("{}: {}", report.config.name, summary.dump());
  return true;
}

}  // namespace magister
