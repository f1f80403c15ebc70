// Parses MAGISTER_FAIL_POINT once: "name[@nth][/rank]:action", several separated by commas.
#include "magister/core/fail_point.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/log.h"

namespace magister {
namespace {

struct Point {
  std::string name, action;
  int nth = 1, rank = -1;
  std::atomic<int> reached{0};
};

std::vector<std::unique_ptr<Point>> parse(const char* text) {
  std::vector<std::unique_ptr<Point>> points;
  std::string rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    std::string entry = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    auto point = std::make_unique<Point>();
    const std::size_t colon = entry.rfind(':');
    if (colon == std::string::npos) continue;
    point->action = entry.substr(colon + 1);
    entry.resize(colon);
    if (const std::size_t slash = entry.find('/'); slash != std::string::npos) {
      point->rank = std::atoi(entry.c_str() + slash + 1);
      entry.resize(slash);
    }
    if (const std::size_t at = entry.find('@'); at != std::string::npos) {
      point->nth = std::atoi(entry.c_str() + at + 1);
      entry.resize(at);
    }
    point->name = entry;
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace

bool fail_point(const char* name) {
  static const auto points = parse(std::getenv("MAGISTER_FAIL_POINT"));
  if (points.empty()) [[likely]] return false;
  for (const auto& point : points) {
    if (point->name != name || (point->rank >= 0 && point->rank != log_world_rank())) continue;
    if (point->reached.fetch_add(1) + 1 != point->nth) continue;
    if (point->action == "kill") std::raise(SIGKILL);
    if (point->action == "hang") {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    if (point->action == "throw") {
      fail(ExitCode::kInternal, "fail point {} on rank {} (a test asked for it); unset MAGISTER_FAIL_POINT", name,
           log_world_rank());
    }
    if (point->action == "enospc") return true;
  }
  return false;
}

}  // namespace magister
