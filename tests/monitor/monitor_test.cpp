// The thread that samples: its file, its statistics, its end, and the faults that it passes on.
#include "magister/monitor/monitor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "magister/monitor/rank_states.h"
#include "monitor/fake_gpu.h"

namespace magister {
namespace {

struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / ("monitor" + std::to_string(::getpid()))).string();
  ~Folder() { std::filesystem::remove_all(path); }
};

MonitorSettings settings_of(const Folder& folder, int rank = 0) {
  MonitorSettings settings;
  settings.folder = folder.path;
  settings.start = "here-1";
  settings.rank = rank;
  settings.seconds = 0.005;
  return settings;
}

// Waits for what the thread does; a test that waits for ever is ended by CTest.
void wait_for(const std::function<bool()>& done) {
  while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(Monitor, WritesTheStateAndEndsIt) {
  const Folder folder;
  const FakeGpu fake("monitor", "energy_step 1000\n");
  {
    MonitorSettings settings = settings_of(folder, 3);
    settings.gpus = {{0, "GPU-1", "0000:01:00.0", "H200"}};
    Monitor monitor(std::move(settings));
    const Monitor::Watch watch(&monitor, "teacher", [] { return std::string("phase compute, unit 7"); });
    monitor.show_progress({{"task", "teacher"}, {"units_done", 4}});
    wait_for([&] { return watch.summary()["samples"].get<int>() > 5; });
    const auto states = read_rank_states(folder.path, "here-1");
    ASSERT_EQ(states.size(), 1U) << std::ifstream(rank_state_path(folder.path, 3)).rdbuf();
    const auto& state = states[0];
    EXPECT_EQ(state["rank"], 3);
    EXPECT_EQ(state["task"], "teacher");
    EXPECT_EQ(state["place"], "phase compute, unit 7");
    EXPECT_EQ(state["ended"], false);
    EXPECT_GT(state["values"]["resident_memory_bytes"].get<double>(), 1e6);
    EXPECT_EQ(state["gpus"][0]["values"]["power_watts"], 412.5);
    EXPECT_EQ(state["progress"]["units_done"], 4);
    const auto summary = watch.summary();
    EXPECT_EQ(summary["gpus"][0]["values"]["power_watts"]["p95"], 412.5);
    EXPECT_GE(summary["gpus"][0]["values"]["energy_watts"]["increase"].get<double>(), 5.0);
    EXPECT_TRUE(summary["values"].contains("cpu_cores"));
  }
  const auto states = read_rank_states(folder.path, "");
  ASSERT_EQ(states.size(), 1U);
  EXPECT_EQ(states[0]["ended"], true);
  EXPECT_EQ(states[0]["task"], "");
  EXPECT_EQ(states[0]["place"], "");
  EXPECT_TRUE(read_rank_states(folder.path, "another").empty());
}

TEST(Monitor, EachTaskHasStatisticsOfItsOwn) {
  const Folder folder;
  const FakeGpu fake("monitor", "energy_step 1000\n");
  MonitorSettings settings = settings_of(folder);
  settings.gpus = {{0, "GPU-1", "", ""}};
  Monitor monitor(std::move(settings));
  const Monitor::Watch run(&monitor, "", nullptr);
  const auto samples = [](const Monitor::Watch& watch) { return watch.summary()["samples"].get<int>(); };
  const auto joules = [](const Monitor::Watch& watch) {
    return watch.summary()["gpus"][0]["values"]["energy_watts"]["increase"].get<double>();
  };
  for (const char* const task : {"teacher", "judge"}) {
    const int before = samples(run);
    const Monitor::Watch watch(&monitor, task, nullptr);
    wait_for([&] { return samples(watch) > 5; });
    EXPECT_EQ(read_rank_states(folder.path, "here-1").at(0)["task"], task);
    const int of_task = samples(watch);
    EXPECT_LE(before + of_task, samples(run));
    EXPECT_GE(joules(watch), 5.0);
  }
  const double of_both = joules(run);
  EXPECT_GE(of_both, 10.0);
  EXPECT_EQ(read_rank_states(folder.path, "here-1").at(0)["task"], "");
}

TEST(Monitor, OneRankCollectsTheMeansOfAll) {
  const Folder folder;
  std::mutex mutex;
  nlohmann::ordered_json last;
  MonitorSettings collects = settings_of(folder, 0);
  collects.series_seconds = 0.02;
  collects.on_series = [&](const nlohmann::ordered_json& series) {
    const std::lock_guard lock(mutex);
    last = series;
  };
  {
    const Monitor second(settings_of(folder, 1));
    const Monitor first(std::move(collects));
    wait_for([&] {
      const std::lock_guard lock(mutex);
      return last.is_object() && last["ranks"].size() == 2;
    });
  }
  EXPECT_EQ(last["ranks"][1]["rank"], 1);
  EXPECT_GT(last["ranks"][0]["values"]["resident_memory_bytes"].get<double>(), 1e6);
  EXPECT_GE(last["seconds"].get<double>(), 0.02);
}

TEST(Monitor, AFatalFaultIsPassedOnOnce) {
  const Folder folder;
  const FakeGpu fake("monitor");
  std::atomic<int> faults = 0;
  MonitorSettings settings = settings_of(folder);
  settings.on_fault = [&](const std::string& message) {
    EXPECT_NE(message.find("memory errors"), std::string::npos) << message;
    ++faults;
  };
  settings.gpus = {{0, "GPU-1", "", ""}};
  Monitor monitor(std::move(settings));
  const Monitor::Watch watch(&monitor, "judge", nullptr);
  fake.also("ecc 1\n");
  wait_for([&] { return faults > 0; });
  const int samples = watch.summary()["samples"].get<int>();
  wait_for([&] { return watch.summary()["samples"].get<int>() > samples + 3; });
  EXPECT_EQ(faults, 1);
}

TEST(Monitor, RunsWithoutAGpuLibraryAndWithoutAFolder) {
  const Folder folder;
  const FakeGpu fake("monitor", "init 9\n");
  std::ofstream(folder.path) << "a file is in the way";
  MonitorSettings settings = settings_of(folder);
  settings.gpus = {{0, "GPU-1", "", ""}};
  Monitor monitor(std::move(settings));
  const Monitor::Watch watch(&monitor, "judge", nullptr);
  wait_for([&] { return watch.summary()["samples"].get<int>() > 2; });
  const auto summary = watch.summary();
  EXPECT_TRUE(summary["gpus"][0]["values"].empty()) << summary;
  EXPECT_GT(summary["values"]["resident_memory_bytes"]["mean"].get<double>(), 1e6);
}

TEST(Monitor, NothingWithoutAMonitor) {
  const Monitor::Watch watch(nullptr, "judge", nullptr);
  EXPECT_TRUE(watch.summary().is_null());
}

}  // namespace
}  // namespace magister
