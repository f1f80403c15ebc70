// See unread_counts.h.
#include "magister/tasks/score/unread_counts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <vector>

#include "magister/core/log.h"
#include "magister/run/run_log.h"

namespace magister {

std::string unread_comment() {
  std::string comment = "why the text was not compared with the answer, and counts as wrong; 0: it was";
  for (std::size_t i = 1; i < kNumUnread; ++i) comment += fmt::format("; {}: {}", i, kUnreadNames[i]);
  return comment;
}

nlohmann::ordered_json unread_json(const UnreadCounts& counts) {
  nlohmann::ordered_json by_reason;
  for (std::size_t i = 1; i < kNumUnread; ++i) by_reason[std::string(kUnreadNames[i])] = counts[i];
  return by_reason;
}

std::string describe_unread(const UnreadCounts& counts) {
  const std::uint64_t all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  std::string words = fmt::format("{} of {} texts not compared", all - counts[0], all);
  for (std::size_t i = 1; i < kNumUnread; ++i) {
    if (counts[i] == 0) continue;
    words += fmt::format("{} {} {}", words.find(':') == std::string::npos ? ":" : ",", counts[i], kUnreadNames[i]);
  }
  return words;
}

bool report_unread(const RunContext& context, const std::string& task, const ResultsFile& file, const char* column,
                   std::uint64_t rows, std::uint64_t width) {
  const std::uint64_t block = std::max<std::uint64_t>(1, (1 << 20) / width);
  UnreadCounts counts{};
  for (std::uint64_t first = 0; first < rows; first += block) {
    if (context.stop.raised()) return false;
    std::vector<std::uint8_t> values(std::min(block, rows - first) * width);
    file.read(column, first, std::as_writable_bytes(std::span(values)));
    for (const std::uint8_t value : values) ++counts.at(value);
  }
  log_info("{}: {}", task, describe_unread(counts));
  nlohmann::ordered_json event = {{"task", task}, {"compared", counts[0]}};
  event.update(unread_json(counts));
  context.log.event("unread", event);
  return true;
}

}  // namespace magister
