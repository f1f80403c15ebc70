// The progress of a job as its run writes it: the events of run.jsonl, and the states of its ranks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace magister {

// {"points": [{"time", "task", "tokens_per_second", ...}],
//  "ranks": [{"rank", "host", "task", "place", "time", "values", "progress", "gpus"}]}
// points: the newest progress events in the order of time, one every 30 s, at most those of the log's last megabyte.
// ranks: what each rank measures every 5 s; the first rank of a task also has its progress. Both are empty before the
// run writes them. Local.
nlohmann::ordered_json progress_of(const std::string& run_folder);

}  // namespace magister
