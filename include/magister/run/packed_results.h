// Functions that all jobs that pack (TaskJob::packing) share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/runtime/stop.h"

namespace magister {

// Bytes that are planned for a token before the texts are known. A token is 3 to 5 bytes of text in most languages.
constexpr std::uint64_t kTextBytesAToken = 8;

// Copies rows [0, num_rows) of a column to the same rows of another file. False: poll() said that the job should stop.
// Local.
bool copy_column(const ResultsFile& from, ResultsFile& to, const std::string& column, std::uint64_t num_rows,
                 const StopPoll& poll);

// A column of texts of any length. Each text is made twice: once for its size, so that a full disk is detected before
// anything is written, and once to be written.
struct TextColumn {
  using Visit = std::function<void(std::string text)>;
  ColumnSpec spec;
  std::function<bool(const Visit&)> for_each;  // the text of every sample, in order; false: the job should stop
};
// Sets the space that the column's texts need. False as for_each(). Local.
bool measure_texts(TextColumn& column);
// Writes all texts in bounded memory; U+FFFD stands for U+0000. False as for_each(). Local.
bool write_text_column(const TextColumn& column, ResultsFile& file);

// Several columns of texts that are made together, one row after the other.
struct TextColumns {
  using Visit = std::function<void(std::size_t column, std::string text)>;
  std::vector<ColumnSpec> specs;               // with the space that their texts need
  std::function<bool(const Visit&)> for_each;  // the texts of every column, in order; false: the job should stop
};
// Measures columns that are made one after the other. Nothing: the job should stop. Local.
std::optional<TextColumns> measured(std::vector<TextColumn> columns);
// Writes all columns in one pass and in bounded memory. False as for_each(). Local.
bool write_text_columns(const TextColumns& columns, ResultsFile& file);

// Commits all pending units of a frozen file whose rows are already written. Local.
void commit_all(ResultsFile& file);

}  // namespace magister
