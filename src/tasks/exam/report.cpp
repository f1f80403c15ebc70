// See report.h.
#include "tasks/exam/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/io/whole_file.h"
#include "tasks/exam/objective_writer.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

const char* name_of_reason(std::size_t bit) {
  const auto is = [bit](ExamReason reason) { return bit == static_cast<std::size_t>(reason); };
  const auto structure = static_cast<std::size_t>(ExamReason::kStructure),
             checks = static_cast<std::size_t>(ExamReason::kChecks);
  if (bit >= structure && bit < structure + kNumStructureChecks)
    return name_of(static_cast<StructureCheck>(bit - structure));
  if (bit >= checks && bit < checks + kNumExamChecks) return name_of(static_cast<ExamCheck>(bit - checks));
  return is(ExamReason::kCutOff)      ? "cut_off"
         : is(ExamReason::kRepeated)  ? "repeated"
         : is(ExamReason::kUnchanged) ? "unchanged"
         : is(ExamReason::kTooLong)   ? "too_long"
                                      : "duplicate";
}

ordered_json counts_of_objectives(const WrittenExam& exam, const ExamSetup& setup) {
  std::vector<std::uint64_t> accepted(exam.objectives.size(), 0);
  for (const ExamVersion& one : exam.versions)
    accepted[one.record] += one.version.state == ExamState::kAccepted ? 1 : 0;
  ordered_json all = ordered_json::array();
  for (std::size_t i = 0; i < exam.objectives.size(); ++i)
    all.push_back({{"number", exam.objectives[i].number},
                   {"objective", exam.objectives[i].text},
                   {"accepted", accepted[i]},
                   {"missing", setup.config.items - accepted[i]}});
  return all;
}

ordered_json counts_of_reasons(const WrittenExam& exam) {
  std::map<std::size_t, std::uint64_t> counts;
  for (const ExamVersion& one : exam.versions) {
    for (std::size_t bit = 0; bit <= static_cast<std::size_t>(ExamReason::kDuplicate); ++bit)
      if ((one.version.reasons >> bit & 1u) != 0) ++counts[bit];
  }
  ordered_json named = ordered_json::object();
  for (const auto& [bit, count] : counts) named[name_of_reason(bit)] = count;
  return named;
}

template <typename Name>
ordered_json counts_by(const std::vector<const ExamVersion*>& accepted, const Name& name) {
  ordered_json counts = ordered_json::object();
  for (const ExamVersion* const one : accepted) {
    const std::string of = name(*one);
    counts[of] = counts.value(of, std::uint64_t{0}) + 1;
  }
  return counts;
}

ordered_json means_of_checks(const std::vector<const ExamVersion*>& accepted) {
  constexpr const char* kNames[] = {"blind",     "blind_right", "closed_book",       "single_key", "support",
                                    "alignment", "wording",     "bloom_probability", "mass",       "same"};
  ordered_json means = ordered_json::object();
  for (std::size_t i = 0; i < kNumExamNumbers; ++i) {
    double sum = 0;
    std::uint64_t count = 0;
    for (const ExamVersion* const one : accepted) {
      const float value = one->version.numbers[i];
      if (!std::isfinite(value)) continue;
      sum += value;
      ++count;
    }
    means[kNames[i]] = count == 0 ? ordered_json() : ordered_json(sum / static_cast<double>(count));
  }
  return means;
}

ordered_json key_positions_of(const Exam& exam) {
  const KeyPositions keys = key_positions(exam.items);
  return {
      {"counts", keys.counts}, {"chi_square", keys.chi_square}, {"degrees", keys.degrees}, {"p_value", keys.p_value}};
}

}  // namespace

ordered_json exam_summary(const WrittenExam& exam, const ExamSetup& setup) {
  std::vector<const ExamVersion*> accepted;
  for (const ExamVersion& one : exam.versions)
    if (one.version.state == ExamState::kAccepted) accepted.push_back(&one);
  const Exam items = exam.exam(setup.config.title);
  const std::uint64_t requested = exam.objectives.size() * setup.config.items;
  ordered_json summary = {{"requested", requested},
                          {"accepted", accepted.size()},
                          {"missing", requested - accepted.size()},
                          {"versions", exam.versions.size()},
                          {"reasons", counts_of_reasons(exam)}};
  summary["kinds"] = counts_by(accepted, [](const ExamVersion& one) { return name_of(one.item.kind); });
  summary["asked_difficulty"] =
      counts_by(accepted, [](const ExamVersion& one) { return name_of(one.asked.difficulty); });
  summary["difficulty"] = counts_by(accepted, [](const ExamVersion& one) { return name_of(one.item.difficulty); });
  summary["bloom"] = counts_by(accepted, [](const ExamVersion& one) { return name_of(one.item.bloom); });
  summary["key_positions"] = key_positions_of(items);
  summary["longest_is_key"] = longest_is_key_share(items.items);
  summary["checks"] = means_of_checks(accepted);
  summary["objectives"] = counts_of_objectives(exam, setup);
  return summary;
}

std::string exam_summary_text(const ordered_json& summary) {
  std::string text = fmt::format("{} of {} items are in the exam, {} are missing; {} versions were written.\n",
                                 summary["accepted"].get<std::uint64_t>(), summary["requested"].get<std::uint64_t>(),
                                 summary["missing"].get<std::uint64_t>(), summary["versions"].get<std::uint64_t>());
  const auto list = [&](const char* title, const char* key) {
    text += fmt::format("{}:", title);
    for (const auto& [name, count] : summary[key].items()) text += fmt::format(" {} {}", name, count.dump());
    text += summary[key].empty() ? " none\n" : "\n";
  };
  list("Kinds", "kinds");
  list("Difficulty by the blind answers", "difficulty");
  list("Bloom's levels", "bloom");
  list("Refused versions by reason", "reasons");
  const ordered_json& keys = summary["key_positions"];
  text += fmt::format("The right choice is in place A, B, ...: {} (chi-square {:.2f}, p = {:.3f}).\n",
                      keys["counts"].dump(), keys["chi_square"].get<double>(), keys["p_value"].get<double>());
  for (const ordered_json& one : summary["objectives"]) {
    if (one["missing"] == 0) continue;
    if (one["objective"].get<std::string>().empty()) {
      text += fmt::format("Objective {} lacks its text: the source gave no further one\n",
                          one["number"].get<std::string>());
      continue;
    }
    text += fmt::format("Objective {} lacks {} of its items: {}\n", one["number"].get<std::string>(),
                        one["missing"].get<std::uint64_t>(), one["objective"].get<std::string>());
  }
  for (const ordered_json& fault : summary["not_exported"]) text += "Not exported: " + fault.get<std::string>() + "\n";
  return text;
}

std::string title_of(const ExamConfig& config) { return config.title.empty() ? config.name : config.title; }

std::string beside_results(const std::string& results_path, const std::string& suffix) {
  return std::filesystem::path(results_path).replace_extension("").string() + suffix;
}

void write_exam_files(const WrittenExam& exam, const ExamSetup& setup, const std::string& results_path) {
  const auto write = [&](const ExamFile& file) {
    fail_point("exam.export.file");
    WholeFile target(beside_results(results_path, file.suffix), WholeFile::Existing::kReplaced);
    target.write(file.bytes);
    target.keep();
  };
  const std::vector<std::string> refused =
      export_exam_as(setup.config.exports, exam.exam(title_of(setup.config)), write);
  for (const std::string& fault : refused) log_warning("{}: {}", setup.config.name, fault);
  ordered_json summary = exam_summary(exam, setup);
  summary["not_exported"] = refused;
  write({".summary.json", summary.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n"});
  write({".summary.txt", exam_summary_text(summary)});
  if (setup.config.auto_objectives > 0) write({".objectives.txt", objective_list(exam.objectives, setup.chunks)});
  log_info("{}: {} of {} items are in the exam, {} are missing", setup.config.name, summary["accepted"].dump(),
           summary["requested"].dump(), summary["missing"].dump());
}

}  // namespace magister
