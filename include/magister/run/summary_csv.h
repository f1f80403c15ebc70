// A summary as a table for spreadsheets: <task>.summary.csv of a judge, <task>.csv of an evaluation.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace magister {

// A row a measure: measure,value,count,of,wilson95_low,wilson95_high. A measure is the path of names in the summary ("verdicts.yes",
// "labels.confusion_label_by_verdict.0.1"); shares have all columns, other numbers a value alone, and null an empty one.
// RFC 4180, with the lines ended by "\n".
std::string summary_csv(const nlohmann::ordered_json& summary);

}  // namespace magister
