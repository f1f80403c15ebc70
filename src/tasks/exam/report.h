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

// The paths of the files that write_exam_files() writes for the formats of `exports:`, without the summaries.
// results_path: <folder>/<name>.h5. Refuses a format that cannot hold the exam: Error(kData), nothing is written.
void write_exam_files(const WrittenExam& exam, const ExamSetup& setup, const std::string& results_path);

// <folder>/<name> and this suffix.
std::string beside_results(const std::string& results_path, const std::string& suffix);

}  // namespace magister
