#include "tasks/exam/exports.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"
#include "tasks/exam/export_formats.h"
#include "tasks/exam/export_text.h"
#include "tasks/exam/item_json.h"
#include "tasks/exam/objectives.h"

namespace magister {
namespace {

constexpr std::size_t kNamedFaults = 5;

std::vector<std::string> nothing_refused(const Exam&) { return {}; }

constexpr ExamExport kExports[] = {
    {"txt", "three text files: problems, solutions, both", exam_txt, nothing_refused},
    {"aiken", "single choice alone, without explanations, for many platforms", exam_aiken, refused_by_aiken, true},
    {"gift", "text for Moodle", exam_gift, refused_by_gift},
    {"moodle", "Moodle XML", exam_moodle, nothing_refused},
    {"qti21", "a QTI 2.1 package", exam_qti21, refused_by_qti},
    {"qti30", "a QTI 3.0 package", exam_qti30, refused_by_qti},
    {"jsonl", "one JSON object for each item", exam_jsonl, nothing_refused},
    {"html", "one page to print", exam_html, nothing_refused},
};

Exam by_objective(Exam exam) {
  const auto before = [](const ExamItem& a, const ExamItem& b) {
    return objective_before(a.objective_number, b.objective_number);
  };
  if (!std::is_sorted(exam.items.begin(), exam.items.end(), before))
    std::stable_sort(exam.items.begin(), exam.items.end(), before);
  return exam;
}

// Why the format cannot hold the exam, with the first items; empty: it can.
std::string fault_of(const ExamExport& format, const Exam& exam) {
  std::vector<std::string> faults = refused_everywhere(exam);
  for (std::string& fault : format.refused(exam)) faults.push_back(std::move(fault));
  if (faults.empty()) return "";
  const std::size_t named = std::min(faults.size(), kNamedFaults);
  const std::string more = faults.size() > named ? fmt::format(" and {} more", faults.size() - named) : "";
  return fmt::format("the format {} cannot hold {}{} (no item is left out silently); choose another format",
                     format.name, fmt::join(faults.begin(), faults.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                     more);
}

}  // namespace

std::span<const ExamExport> exam_exports() { return kExports; }

const ExamExport* find_exam_export(std::string_view name) {
  for (const ExamExport& format : kExports) {
    if (name == format.name) return &format;
  }
  return nullptr;
}

std::vector<ExamFile> export_exam(const ExamExport& format, Exam exam) {
  const Exam ordered = by_objective(std::move(exam));
  if (const std::string fault = fault_of(format, ordered); !fault.empty()) throw Error(ExitCode::kData, fault);
  return format.files(ordered);
}

std::vector<std::string> export_exam_as(const std::vector<std::string>& formats, Exam exam,
                                        const std::function<void(const ExamFile& file)>& write) {
  const Exam ordered = by_objective(std::move(exam));
  std::vector<std::string> refused;
  for (const std::string& name : formats) {
    const ExamExport* const format = find_exam_export(name);
    MAGISTER_CHECK(format != nullptr, ExitCode::kConfig, "no format is named {}; see exports", printable(name, 40));
    if (std::string fault = fault_of(*format, ordered); !fault.empty()) {
      refused.push_back(std::move(fault));
      continue;
    }
    for (const ExamFile& file : format->files(ordered)) write(file);
  }
  return refused;
}

std::vector<ExamFile> exam_jsonl(const Exam& exam) {
  std::string bytes;
  for (const ExamItem& item : exam.items) {
    bytes += item_json(item).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  return {{".jsonl", std::move(bytes)}};
}

}  // namespace magister
