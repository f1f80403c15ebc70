// The state of a rank, which its Monitor writes to <run>/monitor/rank-NNNN.json at every sample. Readers need only the
// file system: `magister top`, the endpoint of Prometheus, and rank 0 for run.jsonl.
// {"schema": 1, "start", "rank", "ranks", "host", "pid", "time" (seconds since 1970), "interval_seconds", "ended",
//  "task", "place", "nvml", "values": {name: value}, "minute": {name: mean}, "gpus": [{"index", "uuid", "pci", "name",
//  "values", "minute"}], "progress": {...}}; the names are those of metrics.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace magister {

std::string rank_state_path(const std::string& folder, int rank);

// Replaces the file in one step, so that a reader never sees half a state. It is not synced: a power loss may lose it.
// Returns false on failure, errno says why. Local.
bool replace_small_file(const std::string& path, const std::string& text) noexcept;

// The states in `folder` of this start (RunLog::start(); empty: of any start), sorted by rank. What is damaged or of a
// later schema is skipped. Local.
std::vector<nlohmann::json> read_rank_states(const std::string& folder, const std::string& start);

// The members that a state should have, or the fallback: a file of another version must not end its reader.
nlohmann::json state_member(const nlohmann::json& state, const char* key);  // null: it has none
std::string state_text(const nlohmann::json& state, const char* key);
double state_number(const nlohmann::json& state, const char* key, double fallback = 0);

}  // namespace magister
