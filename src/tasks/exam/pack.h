// The final file of an exam: every version of every item as a sample, with its text in fields, its checks and its
// tokens; and the exam that such a file holds.
#pragma once

#include <string>

#include "magister/io/results/export.h"
#include "magister/io/results/results_file.h"
#include "magister/runtime/stop.h"
#include "tasks/exam/exports.h"
#include "tasks/exam/written_exam.h"

namespace magister {

// Versions that an item is expected to have at most, on average, where sizes are planned.
inline constexpr std::uint64_t kPlannedVersions = 2;

// Estimated size of the final file before its versions are known.
std::uint64_t packed_exam_bytes(const ExamShape& shape);

// Writes results_path. root: its attributes in order, without num_samples and num_tokens. Overwrites the file of an
// earlier attempt. Returns false if poll said that the job should stop. Rank 0 only.
bool pack_exam(const WrittenExam& exam, const ExamSetup& setup, const ExamShape& shape, const std::string& results_path,
               const Attributes& root, const StopPoll& poll);

// The accepted items of complete results. Throws Error(kData) for a file that is no exam.
Exam exam_of(const ResultsReader& file);

// The formats of `export --to`.
std::span<const ExportFormat> exam_export_formats();

}  // namespace magister
