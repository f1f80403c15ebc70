// Weights that stay: one copy, whoever asks for it and when.
#include "magister/model/weight_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace magister {
namespace weight_store_test {

// The groups of a rank load the same shard at once; each had a copy of its own.
TEST(WeightStore, GroupsOfARankLoadAShardOnce) {
  constexpr int kGroups = 4;
  WeightStore store;
  store.keep_only({"teacher"});
  std::atomic<int> loads = 0, signs_of_life = 0;
  std::latch all_ask(kGroups);
  std::vector<std::shared_ptr<const void>> found(kGroups);
  {
    std::vector<std::jthread> groups;
    for (int i = 0; i < kGroups; ++i) {
      groups.emplace_back([&, i] {
        all_ask.arrive_and_wait();
        const auto load = [&] {
          ++loads;
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          return StoredWeights{std::make_shared<const int>(7), 4};
        };
        found[static_cast<std::size_t>(i)] = store.get("teacher", "0 of 1", load, [&] { ++signs_of_life; });
      });
    }
  }
  EXPECT_EQ(loads, 1);
  EXPECT_GE(signs_of_life, kGroups - 1);
  for (const auto& weights : found) EXPECT_EQ(weights, found[0]);
  EXPECT_EQ(store.host_bytes(), 4u);
}

TEST(WeightStore, WhatEndsALoadEndsThoseThatWaitForIt) {
  WeightStore store;
  store.keep_only({"teacher"});
  std::latch begun(1), waits(1);
  std::jthread first([&] {
    const auto load = [&]() -> StoredWeights {
      begun.count_down();
      waits.wait();
      throw std::runtime_error("no memory");
    };
    EXPECT_THROW(store.get("teacher", "0 of 1", load), std::runtime_error);
  });
  begun.wait();
  const auto load = [] { return StoredWeights{std::make_shared<const int>(7), 4}; };
  std::atomic<bool> told = false;
  EXPECT_THROW(store.get("teacher", "0 of 1", load,
                         [&] {
                           if (!told.exchange(true)) waits.count_down();
                         }),
               std::runtime_error);
  if (!told.exchange(true)) waits.count_down();  // it did not wait: a failure, no standstill
  first.join();
  EXPECT_NE(store.get("teacher", "0 of 1", load), nullptr) << "and is tried again by who asks then";
}

// A job that is asked to stop does not wait for another group's load.
TEST(WeightStore, AWaitCanBeGivenUp) {
  WeightStore store;
  store.keep_only({"teacher"});
  std::latch begun(1), given_up(1);
  std::jthread first([&] {
    store.get("teacher", "0 of 1", [&] {
      begun.count_down();
      given_up.wait();
      return StoredWeights{std::make_shared<const int>(7), 4};
    });
  });
  begun.wait();
  const auto never = []() -> StoredWeights { throw std::logic_error("loaded twice"); };
  EXPECT_THROW(store.get("teacher", "0 of 1", never, [] { throw std::runtime_error("stopped"); }), std::runtime_error);
  given_up.count_down();
}

TEST(WeightStore, WhatIsNotKeptIsTheCallersAlone) {
  WeightStore store;
  const auto load = [] { return StoredWeights{std::make_shared<const int>(7), 4}; };
  EXPECT_NE(store.get("guide", "0 of 1", load), store.get("guide", "0 of 1", load));
  EXPECT_EQ(store.host_bytes(), 0u);
}

TEST(WeightStore, KnowsHowManyRanksHaveACopy) {
  WeightStore store;
  store.keep_only({"teacher", "judge"});
  EXPECT_EQ(store.ranks_a_copy("teacher"), 1);
  store.get("teacher", "a", [] { return StoredWeights{std::make_shared<const int>(7), 4, -1, 4}; });
  store.get("judge", "a", [] { return StoredWeights{std::make_shared<const int>(7), 4}; });
  EXPECT_EQ(store.ranks_a_copy("teacher"), 4);
  EXPECT_EQ(store.ranks_a_copy("judge"), 1);
  store.get("teacher", "b", [] { return StoredWeights{std::make_shared<const int>(7), 4, -1, 2}; });
  EXPECT_EQ(store.ranks_a_copy("teacher"), 2) << "the fewest";
}

}  // namespace weight_store_test
}  // namespace magister
