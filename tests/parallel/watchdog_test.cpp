// The watchdog's clock and message, in one process; what it does to a job is in endings_test.py.
#include "magister/parallel/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "magister/core/host_name.h"
#include "magister/parallel/communicator.h"

namespace magister {
namespace watchdog_test {

using namespace std::chrono_literals;

class Listener {
 public:
  void operator()(const std::string& message) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(message);
  }
  std::vector<std::string> messages() {
    const std::lock_guard lock(mutex_);
    return messages_;
  }
  // True when a message came within half a minute.
  bool hears() {
    for (int i = 0; i < 3000 && messages().empty(); ++i) std::this_thread::sleep_for(10ms);
    return !messages().empty();
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> messages_;
};

TEST(Watchdog, NamesRankHostPhaseUnitAndTimesOnce) {
  Listener listener;
  Watchdog watchdog(150ms, false, std::ref(listener));
  watchdog.enter("compute", 12);
  EXPECT_EQ(watchdog.where(), "phase compute, unit 12");
  ASSERT_TRUE(listener.hears());
  const std::string text = listener.messages().front();
  for (const std::string& part : {"rank 0 on " + host_name(), std::string("in phase compute (unit 12) for "),
                                  std::string("its deadline of 0.1"), std::string("run the same command again")}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(listener.messages().size(), 1u);
}

TEST(Watchdog, EveryPhaseHasItsOwnClockAndDeadline) {
  Listener listener;
  Watchdog watchdog(4s, false, std::ref(listener));  // a process may be off its core for seconds
  for (int unit = 0; unit < 16; ++unit) {
    watchdog.enter("compute", unit);
    std::this_thread::sleep_for(300ms);
  }
  watchdog.enter("load", -1, 60s);
  EXPECT_EQ(watchdog.where(), "phase load");
  std::this_thread::sleep_for(4500ms);
  EXPECT_TRUE(listener.messages().empty());
  watchdog.enter("write", -1, 60ms);
  ASSERT_TRUE(listener.hears());
  EXPECT_NE(listener.messages().front().find("in phase write for"), std::string::npos) << listener.messages().front();
}

TEST(Watchdog, WaitsForOthersAsLongAsTheyShowASignOfLife) {
  Listener listener;
  std::atomic<std::uint64_t> signs{7};
  std::atomic<int> asked{0};
  Watchdog watchdog(100ms, false, std::ref(listener));
  watchdog.wait_for_others("wait for the texts", 3, [&] { return ++asked, ++signs; });
  EXPECT_EQ(watchdog.where(), "phase wait for the texts, unit 3");
  for (int i = 0; i < 3000 && asked < 5; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_GE(asked, 5);
  EXPECT_TRUE(listener.messages().empty());
  // The same sign again is none.
  watchdog.wait_for_others("wait for the texts", 4, [&] { return std::uint64_t{7}; });
  ASSERT_TRUE(listener.hears());
  EXPECT_NE(listener.messages().front().find("in phase wait for the texts (unit 4) for "), std::string::npos);
  EXPECT_NE(listener.messages().front().find("and no rank has reported progress in the last 0.1 s ("),
            std::string::npos);
  // A question without an answer, or one that fails, is no sign of life either.
  std::atomic<bool> answers{false};
  watchdog.wait_for_others("wait for the texts", 7, [&] {
    while (!answers) std::this_thread::sleep_for(1ms);
    return ++signs;
  });
  for (int i = 0; i < 3000 && listener.messages().size() < 2; ++i) std::this_thread::sleep_for(10ms);
  ASSERT_EQ(listener.messages().size(), 2u);
  EXPECT_NE(listener.messages().back().find("in phase wait for the texts (unit 7) for "), std::string::npos);
  answers = true;
  watchdog.wait_for_others("wait for the texts", 8, []() -> std::uint64_t { throw std::runtime_error("no window"); });
  for (int i = 0; i < 3000 && listener.messages().size() < 3; ++i) std::this_thread::sleep_for(10ms);
  ASSERT_EQ(listener.messages().size(), 3u);
  // A phase of its own has no such grace.
  watchdog.wait_for_others("wait for the texts", 5, [&] { return ++signs; });
  watchdog.enter("compute", 6);
  for (int i = 0; i < 3000 && listener.messages().size() < 4; ++i) std::this_thread::sleep_for(10ms);
  ASSERT_EQ(listener.messages().size(), 4u);
  EXPECT_NE(listener.messages().back().find("in phase compute (unit 6) for "), std::string::npos);
}

TEST(Watchdog, NothingIsWatchedBeforeAndAfterwards) {
  Listener listener;
  {
    Watchdog watchdog(1s, true, std::ref(listener));
    std::this_thread::sleep_for(2s);
    watchdog.enter("compute");
    watchdog.leave();
    std::this_thread::sleep_for(2s);
    EXPECT_TRUE(listener.messages().empty());
    watchdog.enter("compute");
    EXPECT_TRUE(listener.hears());  // and again after a stall was reported
    watchdog.enter("compute");
    for (int i = 0; i < 3000 && listener.messages().size() < 2; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(listener.messages().size(), 2u);
  }
  const auto begin = std::chrono::steady_clock::now();
  {
    Watchdog idle(100s, false);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);  // its end does not wait for its next look
}

}  // namespace watchdog_test
}  // namespace magister
