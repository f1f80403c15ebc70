// A summary as a table for spreadsheets: <task>.summary.csv of a judge, <task>.csv of an evaluation.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace magister {

// One row for each measure: measure,value,count,of,wilson95_low,wilson95_high. A measure is the path of names in the
// summary ("verdicts.yes", "labels.confusion_label_by_verdict.0.1"). Shares fill all columns, other values only the
// column value, and null leaves it empty. RFC 4180, except that lines end with "\n".
std::string summary_csv(const nlohmann::ordered_json& summary);

}  // namespace magister
