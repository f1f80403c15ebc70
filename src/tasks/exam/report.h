// Files next to an exam's results: its exports, and <name>.summary.json and .summary.txt. All of it is arithmetic
// over the versions: no model has an opinion on the exam as a whole.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tasks/exam/written_exam.h"

namespace magister {

// Items requested, accepted and missing, by objective; reasons; shares of difficulties, levels and kinds; positions of
// the key with chi-square; versions per item; means of the checks over accepted items.
nlohmann::ordered_json exam_summary(const WrittenExam& exam, const ExamSetup& setup);
// The same for people; names every objective that lacks items.
std::string exam_summary_text(const nlohmann::ordered_json& summary);

// Writes the formats of `exports:` and the summaries. results_path: <folder>/<name>.h5. A format that cannot hold the
// exam is not written; a warning and the summary say why.
void write_exam_files(const WrittenExam& exam, const ExamSetup& setup, const std::string& results_path);

// The title that the exports show: the task's name unless one is given.
std::string title_of(const ExamConfig& config);

// <folder>/<name> and this suffix.
std::string beside_results(const std::string& results_path, const std::string& suffix);

}  // namespace magister
