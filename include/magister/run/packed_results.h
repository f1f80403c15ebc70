// Functions that all jobs that pack (TaskJob::packing) share.
#pragma once

#include <cstdint>
#include <string>

#include "magister/io/results/results_file.h"
#include "magister/runtime/stop.h"

namespace magister {

// Bytes that are planned for a token before the texts are known. A token is 3 to 5 bytes of text in most languages.
constexpr std::uint64_t kTextBytesAToken = 8;

// Copies rows [0, num_rows) of a column to the same rows of another file. False: poll() said that the job should stop.
// Local.
bool copy_column(const ResultsFile& from, ResultsFile& to, const std::string& column, std::uint64_t num_rows,
                 const StopPoll& poll);

// Commits all pending units of a frozen file whose rows are already written. Local.
void commit_all(ResultsFile& file);

}  // namespace magister
