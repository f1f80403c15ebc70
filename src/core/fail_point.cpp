// Parses MAGISTER_FAIL_POINT once: "name[@nth][/rank]:action", several entries separated by commas. An entry that
// cannot be parsed is an error: otherwise a test with a typing error would pass because nothing happened.
#include "magister/core/fail_point.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
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

// Removes "<mark>number" from the end of the entry, if it is there, and stores the number.
void take_number(std::string_view& entry, char mark, int least, int& value, std::string_view whole) {
  const std::size_t at = entry.rfind(mark);
  if (at == std::string_view::npos) return;
  const std::string_view digits = entry.substr(at + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  MAGISTER_CHECK(error == std::errc{} && end == digits.data() + digits.size() && value >= least, ExitCode::kUsage,
                 "MAGISTER_FAIL_POINT: \"{}\" has no whole number after {} (nothing would happen); write "
                 "name[@nth][/rank]:action",
                 printable(whole), mark);
  entry = entry.substr(0, at);
}

std::unique_ptr<Point> parse_entry(std::string_view whole) {
  auto point = std::make_unique<Point>();
  const std::size_t colon = whole.rfind(':');
  point->action = colon == std::string_view::npos ? "" : whole.substr(colon + 1);
  constexpr std::string_view kActions[] = {"kill", "hang", "stop", "slow", "throw", "enospc"};
  const bool known = std::find(std::begin(kActions), std::end(kActions), point->action) != std::end(kActions);
  MAGISTER_CHECK(known, ExitCode::kUsage,
                 "MAGISTER_FAIL_POINT: \"{}\" has no action (nothing would happen); end it with :kill, "
                 ":hang, :stop, :slow, :throw or :enospc",
                 printable(whole));
  std::string_view entry = whole.substr(0, colon);
  take_number(entry, '/', 0, point->rank, whole);
  take_number(entry, '@', 1, point->nth, whole);
  point->name = entry;
  MAGISTER_CHECK(!point->name.empty(), ExitCode::kUsage,
                 "MAGISTER_FAIL_POINT: \"{}\" has no name (nothing would happen); write "
                 "name[@nth][/rank]:action",
                 printable(whole));
  return point;
}

std::vector<std::unique_ptr<Point>> parse(const char* text) {
  std::vector<std::unique_ptr<Point>> points;
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    points.push_back(parse_entry(rest.substr(0, comma)));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return points;
}

// Returns true if the caller has to behave as if the disk were full.
bool act(const Point& point) {
  if (point.action == "kill") std::raise(SIGKILL);
  if (point.action == "stop") std::raise(SIGSTOP);  // until the test sends SIGCONT
  while (point.action == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  MAGISTER_CHECK(point.action != "throw", ExitCode::kInternal,
                 "fail point {} on rank {} (a test asked for it); unset "
                 "MAGISTER_FAIL_POINT",
                 point.name, log_world_rank());
  return point.action == "enospc";
}

}  // namespace

bool fail_point(const char* name) {
  static const auto points = parse(std::getenv("MAGISTER_FAIL_POINT"));
  if (points.empty()) [[likely]]
    return false;
  for (const auto& point : points) {
    if (point->name != name || (point->rank >= 0 && point->rank != log_world_rank())) continue;
    const int reached = point->reached.fetch_add(1) + 1;
    if (point->action == "slow" && reached >= point->nth) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (reached == point->nth && act(*point)) return true;
  }
  return false;
}

}  // namespace magister
