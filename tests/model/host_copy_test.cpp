// The ranks of a host fill one copy together: each piece once, and all of them see it.
#include "magister/model/host_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "magister/core/error.h"
#include "support/huge_pages.h"

namespace magister {
namespace host_copy_test {

constexpr std::size_t kMega = std::size_t{1} << 20;
constexpr const char* kNothingToShare = "one rank, or a kernel without huge pages on request";

TEST(HostCopy, EveryPieceIsFilledOnceAndSeenByAll) {
  const Communicator world = Communicator::world();
  const std::vector<std::size_t> sizes = {3 * kMega + 5, 100, 2 * kMega, 64, 5 * kMega, 1, kMega + 1};
  if (!ranks_share_huge_pages(world)) GTEST_SKIP() << kNothingToShare;
  const std::shared_ptr<HostCopy> copy = HostCopy::make(world, 12 * kMega);
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->num_ranks(), world.size());
  ASSERT_TRUE(copy->begin());
  EXPECT_FALSE(copy->begin()) << "a second load of this process has memory of its own";
  std::vector<std::byte*> pieces;
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::byte* const data = copy->cut(sizes[i]);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
    pieces.push_back(data);
    copy->fill_once([&] {
      ++filled;
      std::fill_n(data, sizes[i], std::byte(i + 1));
    });
  }
  copy->wait({});
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(std::all_of(pieces[i], pieces[i] + sizes[i], [i](std::byte b) { return b == std::byte(i + 1); })) << i;
  }
  EXPECT_EQ(world.sum(filled), sizes.size());
  EXPECT_EQ(copy->cut(3 * kMega), nullptr) << "there is no room for it";
  world.barrier();
}

// The kernel refuses some of the ranks that take the same huge page at a time.
TEST(HostCopy, RanksThatBeginTogetherDoNotRefuseEachOther) {
  const Communicator world = Communicator::world();
  constexpr int kCopies = 30;
  if (!ranks_share_huge_pages(world)) GTEST_SKIP() << kNothingToShare;
  int made = 0;
  for (int i = 0; i < kCopies; ++i) made += HostCopy::make(world, kMega) != nullptr ? 1 : 0;
  EXPECT_EQ(made, kCopies);
}

TEST(HostCopy, IsExpectedWhereItIsMade) {
  const Communicator world = Communicator::world();
  EXPECT_EQ(HostCopy::make(world, kMega) != nullptr, ranks_share_huge_pages(world));
  if (world.size() > 1) EXPECT_EQ(HostCopy::works_on(world), ranks_share_huge_pages(world));
}

TEST(HostCopy, IsNotExpectedWhereTheKernelRefuses) {
  const Communicator world = Communicator::world();
  std::thread([&] {
    const bool refuses = world.rank() > 0 || refuse_huge_pages();
    if (world.min(std::uint64_t{refuses ? 1u : 0u}) == 0) return;
    EXPECT_FALSE(HostCopy::works_on(world));
    EXPECT_EQ(HostCopy::make(world, kMega), nullptr);
  }).join();
}

TEST(HostCopy, WhoCannotFillReportsAndAllFail) {
  const Communicator world = Communicator::world();
  if (!ranks_share_huge_pages(world)) GTEST_SKIP() << kNothingToShare;
  const std::shared_ptr<HostCopy> copy = HostCopy::make(world, kMega);
  ASSERT_NE(copy, nullptr);
  ASSERT_TRUE(copy->begin());
  ASSERT_NE(copy->cut(100), nullptr);
  ExitCode code = ExitCode::kDone;
  std::uint64_t reports = 0;
  try {
    copy->fill_once([] { throw Error(ExitCode::kInputOutput, "gone"); });
    copy->wait({});
  } catch (const Error& error) {
    code = error.code();
    reports = std::string(error.what()) == "gone" ? 1 : 0;
  }
  EXPECT_EQ(code, ExitCode::kInputOutput) << "on every rank, so that the task ends and not the job";
  EXPECT_EQ(world.sum(reports), 1u);
}

}  // namespace host_copy_test
}  // namespace magister
