#include "serve/job_progress.h"

#include <algorithm>
#include <fstream>

#include "magister/monitor/rank_states.h"

namespace magister {
namespace {

constexpr std::streamoff kMostOfALog = 1 << 20;

// The end of the file, from the beginning of a line on.
std::ifstream end_of_log(const std::string& path) {
  std::ifstream log(path, std::ios::binary | std::ios::ate);
  if (!log) return log;
  const std::streamoff size = log.tellg(), begin = std::max<std::streamoff>(0, size - kMostOfALog);
  log.seekg(begin);
  std::string rest_of_a_line;
  if (begin > 0) std::getline(log, rest_of_a_line);
  return log;
}

}  // namespace

nlohmann::ordered_json progress_of(const std::string& run_folder) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array(), ranks = points;
  std::ifstream log = end_of_log(run_folder + "/run.jsonl");
  for (std::string line; std::getline(log, line);) {
    if (line.find("\"event\":\"progress\"") == std::string::npos) continue;
    nlohmann::ordered_json event = nlohmann::ordered_json::parse(line, nullptr, false);
    if (!event.is_object()) continue;
    for (const char* const key : {"schema", "start", "event"}) event.erase(key);
    points.push_back(std::move(event));
  }
  for (const nlohmann::json& state : read_rank_states(run_folder + "/monitor", "")) {
    nlohmann::json values = state_member(state, "values");  // of this moment, then the means of the last minute
    const nlohmann::json minute = state_member(state, "minute");
    if (values.is_object() && minute.is_object()) values.update(minute);
    ranks.push_back({{"rank", state_number(state, "rank")},
                     {"host", state_text(state, "host")},
                     {"task", state_text(state, "task")},
                     {"place", state_text(state, "place")},
                     {"time", state_number(state, "time")},
                     {"values", std::move(values)},
                     {"progress", state_member(state, "progress")},
                     {"gpus", state_member(state, "gpus")}});
  }
  return {{"points", std::move(points)}, {"ranks", std::move(ranks)}};
}

}  // namespace magister
