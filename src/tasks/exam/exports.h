// Exams as files that people and learning platforms read. Every function is local and gives the same bytes for the same
// exam. What a format cannot hold is refused for that format by name; control characters that XML cannot hold become
// U+FFFD in all formats but JSONL, whose escapes keep them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/exam/item.h"

namespace magister {

struct Exam {
  std::string title;
  std::string language = "en";  // BCP 47, for attributes of HTML and QTI
  std::vector<ExamItem> items;  // in the order of the exam
};

// A file: its name is the exam's file name and this suffix.
struct ExamFile {
  std::string suffix;  // "_Problems.txt", ".gift"
  std::string bytes;
};

struct ExamExport {
  const char* name;  // of `exports:` and of `export --to`
  const char* purpose;
  std::vector<ExamFile> (*files)(const Exam& exam);
  // One line for each item that this format cannot hold: "item <id>: <problem>"; or one for all of them.
  std::vector<std::string> (*refused)(const Exam& exam);
  bool holds_choices_alone = false;  // no item of another kind
};

// txt, aiken, gift, moodle, qti21, qti30, jsonl, html.
std::span<const ExamExport> exam_exports();
const ExamExport* find_exam_export(std::string_view name);  // null: no such format

// The files; Error(kData) that names the format, the first refused items and how many more there are.
std::vector<ExamFile> export_exam(const ExamExport& format, Exam exam);

// Passes the files of several formats to `write`, one format after the other, so that one alone is in memory. Returns
// why formats cannot hold the exam: these have no file, since one item must not end a run whose other files are right.
std::vector<std::string> export_exam_as(const std::vector<std::string>& formats, Exam exam,
                                        const std::function<void(const ExamFile& file)>& write);

}  // namespace magister
