// The parts of an answer to a request beyond its text, as columns of the packed file: `export --to openai_batch` then
// needs neither the data set nor the tokenizer.
#pragma once

#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/io/results/export.h"
#include "magister/run/packed_results.h"
#include "magister/runtime/stop.h"
#include "magister/text/tokenizer.h"
#include "tasks/generate/columns.h"
#include "tasks/generate/request_table.h"

namespace magister {

// The columns for the texts of `running`, whose record i is request i. All arguments are kept by reference but the
// shape.
std::vector<TextColumn> request_columns(const ResultsFile& running, const GenerateShape& shape, const Dataset& dataset,
                                        const RequestTable& requests, const Tokenizer& tokenizer, const StopPoll& poll);

// One line for each record, in order: {"id", "custom_id", "response": {"status_code": 200, "request_id", "body": a chat
// completion, or of /v1/completions a completion, with a choice for each text}, "error": null}. `created` is the time
// at which the results file was written. Results of other data sets have their key as custom_id, the task's model has
// no name there (""), and no choice has log-probabilities. Local.
void export_openai_batch(const ResultsReader& file, const ExportedColumns& columns, const std::string& out);

}  // namespace magister
