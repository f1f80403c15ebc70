// Counts of texts that were not compared with their right answers, by reason: read from columns of Unread, and
// reported.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "magister/io/results/results_file.h"
#include "magister/run/run_context.h"
#include "magister/text/unread.h"

namespace magister {

// by reason; the first is the count of texts that were compared
using UnreadCounts = std::array<std::uint64_t, kNumUnread>;

// The comment of such a column.
std::string unread_comment();
// {"nothing_found": 3, "not_read": 0, ...}
nlohmann::ordered_json unread_json(const UnreadCounts& counts);
// "3 of 40 texts not compared: 3 nothing_found"
std::string describe_unread(const UnreadCounts& counts);
// Reports the counts of a complete column with `width` texts per row, in the log and as the event `unread` of
// run.jsonl. False: the job was asked to stop. Local.
bool report_unread(const RunContext& context, const std::string& task, const ResultsFile& file, const char* column,
                   std::uint64_t rows, std::uint64_t width);

}  // namespace magister
