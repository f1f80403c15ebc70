// What jobs that pack (TaskJob::packing) do alike.
#pragma once

#include <cstdint>
#include <string>

#include "magister/io/results/results_file.h"
#include "magister/runtime/stop.h"

namespace magister {

// A token is 3 to 5 bytes of text in most languages: what is planned for the texts before they are known.
constexpr std::uint64_t kTextBytesAToken = 8;

// Rows [0, num_rows) of a column to the same place of another file. False: poll said that the job should stop. Local.
bool copy_column(const ResultsFile& from, ResultsFile& to, const std::string& column, std::uint64_t num_rows,
                 const StopPoll& poll);

// Commits the units of a frozen file whose rows are all there. Local.
void commit_all(ResultsFile& file);

}  // namespace magister
