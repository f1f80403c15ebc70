// The line of progress, the closing table over ranks, and run.jsonl.
#include "magister/run/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/parallel/communicator.h"
#include "magister/run/phase_times.h"
#include "magister/run/run_log.h"

namespace magister {
namespace progress_test {

std::string line(const Progress& progress, Progress::Total done, double seconds, const InFlight& in_flight = {},
                 std::optional<SlowestRank> slowest = {}) {
  return progress_line(progress.measure(done, seconds, in_flight, slowest), false);
}

TEST(Progress, SaysDoneRateAndTimeLeft) {
  const Progress fresh("teacher", {400, 10'000}, {}, {});
  EXPECT_EQ(line(fresh, {100, 2500}, 10),
            "teacher: 100/400 units (25.0 %), 250 tokens/s, elapsed 0:00:10, ETA 0:00:30");
  EXPECT_EQ(line(fresh, {0, 0}, 10), "teacher: 0/400 units (0.0 %), 0 tokens/s, elapsed 0:00:10, ETA unknown");
  EXPECT_EQ(line(fresh, {400, 10'000}, 40),
            "teacher: 400/400 units (100.0 %), 250 tokens/s, elapsed 0:00:40, ETA 0:00:00");
  // Units of an earlier run count as done, but its speed is not this run's.
  const Progress resumed("teacher", {400, 10'000}, {200, 5000}, {});
  EXPECT_EQ(line(resumed, {300, 7500}, 10),
            "teacher: 300/400 units (75.0 %), 250 tokens/s, elapsed 0:00:10, ETA 0:00:10");
  // Groups of one size have most of what is left to do.
  EXPECT_EQ(line(fresh, {100, 2500}, 10, {}, SlowestRank{3, 400, 1.5}),
            "teacher: 100/400 units (25.0 %), 250 tokens/s, elapsed 0:00:10, ETA 0:00:45, slowest rank 3: 40 tokens/s");
  EXPECT_EQ(line(fresh, {100, 2500}, 10, {}, SlowestRank{3, 400}),
            "teacher: 100/400 units (25.0 %), 250 tokens/s, elapsed 0:00:10, ETA 0:00:30, slowest rank 3: 40 tokens/s");
  const Progress live("teacher", {400, 10'000}, {}, {});
  EXPECT_EQ(progress_line(live.measure({120, 3000}, 10), true),
            "teacher [######--------------] 120/400 units (30.0 %), 300 tokens/s, elapsed 0:00:10, ETA 0:00:23");
  const Progress nothing("teacher", {0, 0}, {}, {});
  EXPECT_EQ(line(nothing, {0, 0}, 0), "teacher: 0/0 units (100.0 %), 0 tokens/s, elapsed 0:00:00, ETA 0:00:00");
}

// A record of 400 texts is one unit: until it is committed the line speaks of its texts.
TEST(Progress, TextsInFlightHaveARateAndATimeLeft) {
  const Progress progress("generate", {2, 96}, {}, {});
  EXPECT_EQ(line(progress, {0, 0}, 10, {1, 400, 0, 48, 1}),
            "generate: 0/2 units (0.0 %), 0 of 400 texts in flight written, 5 tokens/s, elapsed 0:00:10, ETA unknown");
  EXPECT_EQ(
      line(progress, {0, 0}, 10, {1, 400, 100, 5000, 1}),
      "generate: 0/2 units (0.0 %), 100 of 400 texts in flight written, 500 tokens/s, elapsed 0:00:10, ETA 0:01:10");
  EXPECT_EQ(
      line(progress, {0, 0}, 10, {1, 400, 100, 5000, 2}),
      "generate: 0/2 units (0.0 %), 100 of 400 texts in flight written, 500 tokens/s, elapsed 0:00:10, ETA 0:00:30");
  EXPECT_EQ(line(progress, {1, 48}, 12, {2, 800, 500, 9000, 1}),
            "generate: 1/2 units (50.0 %), 4 tokens/s, elapsed 0:00:12, ETA 0:00:12");
}

// The tokens of a unit are its prompt's: what was written is told apart, whether or not its unit is committed.
TEST(Progress, WrittenTokensAreToldApart) {
  const Progress progress("generate", {2, 96}, {}, {});
  EXPECT_EQ(line(progress, {0, 0, 3000}, 10, {1, 400, 100, 3048, 1}),
            "generate: 0/2 units (0.0 %), 100 of 400 texts in flight written, 300 tokens/s written, elapsed 0:00:10, "
            "ETA 0:01:10");
  EXPECT_EQ(line(progress, {1, 48, 9000}, 12, {2, 800, 500, 9096, 1}, SlowestRank{1, 24}),
            "generate: 1/2 units (50.0 %), 750 tokens/s written, 4 tokens/s of prompts, elapsed 0:00:12, ETA 0:00:12, "
            "slowest rank 1: 2 tokens/s of prompts");
}

TEST(Progress, LiveLineIsReplacedAndCleared) {
  RunLog log;
  testing::internal::CaptureStderr();
  {
    Progress progress("t", {2, 20}, {}, default_progress_readers(log, true));
    progress.update({1, 10});  // too early to say anything
    std::this_thread::sleep_for(std::chrono::milliseconds(550));
    progress.update({1, 10});
    progress.update({2, 20});  // too early again
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(std::regex_match(text, std::regex("\r\x1b\\[Kt \\[#{10}-{10}\\] 1/2 units \\(50\\.0 %\\), [0-9]+ "
                                                "tokens/s, elapsed 0:00:0[1-9], ETA 0:00:0[0-9]\r\x1b\\[K")))
      << text;
}

// Rank r spends r + 1 seconds computing; only rank 0 loads.
TEST(PhaseTimes, TableOverTheRanks) {
  const Communicator world = Communicator::world();
  const double n = world.size();
  PhaseTimes times;
  if (world.rank() == 0) times.add("load", 2.0);
  times.add("compute", 0.5);
  times.add("compute", world.rank() + 0.5);
  {
    const PhaseTimes::Span span(times, "wait");
  }
  const std::vector<PhaseRow> rows = gather_phases(world, times);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].phase, "load");
  EXPECT_DOUBLE_EQ(rows[0].max, 2.0);
  EXPECT_DOUBLE_EQ(rows[0].mean, 2.0 / n);
  EXPECT_DOUBLE_EQ(rows[0].min, n == 1 ? 2.0 : 0.0);
  EXPECT_DOUBLE_EQ(rows[1].min, 1.0);
  EXPECT_DOUBLE_EQ(rows[1].max, n);
  EXPECT_NEAR(rows[1].mean, (n + 1) / 2, 1e-12);
  const std::string table = phase_table(rows, 1000, 4.0);
  EXPECT_NE(table.find("250.0 tokens/s"), std::string::npos) << table;
  const std::string of_texts = phase_table(rows, 1000, 4.0, 6000);
  EXPECT_NE(of_texts.find("6000 written tokens in 4.00 s: 1500.0 tokens/s; 1000 of prompts: 250.0 tokens/s; compute"),
            std::string::npos)
      << of_texts;
  EXPECT_NE(table.find(fmt::format("compute imbalance {:.1f} %", 100 * (n / ((n + 1) / 2) - 1))), std::string::npos)
      << table;
}

TEST(RunLog, OneObjectALineAppended) {
  const Communicator world = Communicator::world();
  if (world.rank() != 0) return;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("magister_run_log_{}", getpid());
  const std::string path = folder / "deep" / "run.jsonl";
  {
    RunLog log(path);
    log.event("start", {{"ranks", 2}, {"name", "bad \xFF bytes"}});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&log, t] {
        for (int i = 0; i < 100; ++i) log.event("unit", {{"index", t * 100 + i}});
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  {
    RunLog(path).event("again", {});
  }
  {
    RunLog().event("nowhere", {{"x", 1}});
  }
  std::ifstream file(path);
  std::vector<nlohmann::json> events;
  for (std::string line; std::getline(file, line);) events.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(events.size(), 402u);
  EXPECT_EQ(events.front()["event"], "start");
  EXPECT_EQ(events.front()["schema"], 1);
  EXPECT_EQ(events.front()["ranks"], 2);
  EXPECT_EQ(events.back()["event"], "again");
  EXPECT_EQ(events[1]["start"], events.front()["start"]);
  EXPECT_NE(events.back()["start"], events.front()["start"]) << "of another start";
  EXPECT_EQ(RunLog(path, "the same").start(), "the same");
  const std::regex stamp(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)");
  for (const nlohmann::json& event : events) EXPECT_TRUE(std::regex_match(event["time"].get<std::string>(), stamp));
  std::filesystem::remove_all(folder);
  EXPECT_THROW(RunLog("/proc/nowhere/run.jsonl"), Error);
}

// A full disk below it: end_to_end/full_disk and the fail point run_log.write.
TEST(RunLog, IsARegularFile) {
  if (Communicator::world().rank() != 0) return;
  EXPECT_THROW(RunLog("/dev/full"), Error);
}

}  // namespace progress_test
}  // namespace magister
