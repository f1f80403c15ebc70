// The fields of the records that a task's prompts read, as columns of its packed file (kRecordGroup): the file can be
// read, and its texts can be the records of a later task, without the data set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/run/packed_results.h"
#include "magister/runtime/stop.h"

namespace magister {

// Reads the data set once, for the kinds and sizes of all fields; writing the columns reads it once more.
// names: the fields; each record's value is repeated for its `texts` texts, of which the file has num_texts. A field
// that is a text in all records is one in the column; others are JSON (units "JSON"). An absent field is null. The
// columns keep references to dataset and poll. nullopt: poll said that the job should stop. Local.
std::optional<TextColumns> record_columns(const Dataset& dataset, const std::vector<std::string>& names,
                                          std::uint64_t texts, std::uint64_t num_texts, const StopPoll& poll);

}  // namespace magister
