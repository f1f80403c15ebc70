// The summary of an evaluation over all records: <name>.json and, as one line per figure, <name>.csv.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "magister/runtime/stop.h"
#include "magister/tasks/score/scores_file.h"
#include "tasks/evaluate/config.h"

namespace magister {

// Records per commit, and per read of the sums.
inline constexpr std::uint64_t kEvaluatedUnit = 4096;

// Reads rows of a column, from `first` on, until `rows` is full.
using ReadRows = std::function<void(const char* column, std::uint64_t first, std::span<std::byte> rows)>;

// The means over all records, summed in their order: the same result on any number of ranks. scored: those of
// config.scores. nullopt if the run is stopped. Local.
std::optional<nlohmann::ordered_json> evaluation_summary(const EvaluateConfig& config,
                                                         const std::vector<ScoresFile>& scored,
                                                         std::uint64_t num_records, const ReadRows& read,
                                                         const StopSign& stop);

}  // namespace magister
