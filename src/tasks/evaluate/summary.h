// What an evaluation says of all records: <name>.json and, line by line, <name>.csv.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "magister/runtime/stop.h"
#include "tasks/evaluate/config.h"
#include "tasks/evaluate/scores.h"

namespace magister {

// What one commit covers, and what the sums read at once.
inline constexpr std::uint64_t kEvaluatedUnit = 4096;

// Rows of a column, from the first on, as many as there is room for.
using ReadRows = std::function<void(const char* column, std::uint64_t first, std::span<std::byte> rows)>;

// The means over all records, in their order: the same sum on any number of ranks. scored: of config.scores. Nothing where the run is stopped.
// Local.
std::optional<nlohmann::ordered_json> evaluation_summary(const EvaluateConfig& config,
                                                         const std::vector<MethodScores>& scored,
                                                         std::uint64_t num_records, const ReadRows& read,
                                                         const StopSign& stop);

}  // namespace magister
