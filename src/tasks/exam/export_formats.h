// The functions of the table in exports.cpp, one or two for a format. The exam's items are in the order of their
// objectives, and refused_everywhere() is empty. Local.
#pragma once

#include <string>
#include <vector>

#include "tasks/exam/exports.h"

namespace magister {

std::vector<ExamFile> exam_txt(const Exam& exam);
std::vector<ExamFile> exam_aiken(const Exam& exam);
std::vector<std::string> refused_by_aiken(const Exam& exam);
std::vector<ExamFile> exam_gift(const Exam& exam);
std::vector<std::string> refused_by_gift(const Exam& exam);
std::vector<ExamFile> exam_moodle(const Exam& exam);
std::vector<ExamFile> exam_qti21(const Exam& exam);
std::vector<ExamFile> exam_qti30(const Exam& exam);
std::vector<std::string> refused_by_qti(const Exam& exam);
std::vector<ExamFile> exam_jsonl(const Exam& exam);
std::vector<ExamFile> exam_html(const Exam& exam);

}  // namespace magister
