// CPU quotas of both cgroup versions, read from small trees of files; usable_cores() obeys mask and quota.
#include "parallel/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "magister/parallel/thread_pool.h"

namespace magister {
namespace cores_test {

namespace fs = std::filesystem;

class Cgroup : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "magister-cgroup-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  CpuQuota quota(const std::string& lines) { return read_cpu_quota(lines, root_.string()); }
  fs::path root_;
};

TEST_F(Cgroup, Version2TakesTheSmallestOnTheWayUp) {
  write("job/cpu.max", "300000 100000\n");
  write("job/step/cpu.max", "max 100000\n");
  write("job/step/task/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota("0::/job/step/task\n").cores, 3);
  EXPECT_EQ(quota("0::/job/step/task\n").group, (root_ / "job").string());
  EXPECT_EQ(quota("0::/\n").cores, 0);
  EXPECT_EQ(quota("0::/absent\n").cores, 0);
}

TEST_F(Cgroup, Version1HasTwoFiles) {
  write("cpu,cpuacct/slurm/cpu.cfs_quota_us", "250000\n");
  write("cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("3:cpuset:/\n2:cpu,cpuacct:/slurm/job_7\n0::/\n").cores, 2);
  write("cpu,cpuacct/slurm/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota("2:cpu,cpuacct:/slurm/job_7\n").cores, 0);
}

TEST_F(Cgroup, AContainerSeesItsOwnGroupAsTheRoot) {
  write("cpu/cpu.cfs_quota_us", "400000\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("1:cpu:/docker/0123\n").cores, 4);
}

TEST_F(Cgroup, LessThanOneCoreIsOneAndNonsenseIsNoLimit) {
  write("cpu.max", "50000 100000\n");
  EXPECT_EQ(quota("0::/\n").cores, 1);
  for (const char* text : {"", "max", "x y", "100000", "-5 100000", "100000 0", "99999999999999999999 1"}) {
    write("cpu.max", text);
    EXPECT_TRUE(quota("0::/\n").cores == 0 || quota("0::/\n").cores == 1 << 20) << text;
  }
  EXPECT_EQ(quota("").cores, 0);
  EXPECT_EQ(quota("garbage without colons\n:\n").cores, 0);
}

TEST_F(Cgroup, CoresAreAtTheMemoryOfOneNodeOrOfSeveral) {
  const auto node = [&](const std::vector<int>& cores) { return memory_node_of(cores, root_.string()); };
  const auto num_nodes = [&] { return num_nodes_with_cores(root_.string()); };
  EXPECT_EQ(node({0, 1}), -1) << "a system without nodes";
  EXPECT_EQ(num_nodes(), 1);
  write("node0/cpulist", "0-3,8-11\n");
  write("node1/cpulist", "4-7,12-15\n");
  write("node2/cpulist", "\n");
  write("node3/cpulist", "16\n");
  EXPECT_EQ(num_nodes(), 3) << "one has memory alone";
  EXPECT_EQ(node({0, 3, 8}), 0);
  EXPECT_EQ(node({5, 15}), 1);
  EXPECT_EQ(node({16}), 3);
  EXPECT_EQ(node({3, 4}), -1);
  EXPECT_EQ(node({11, 12}), -1);
  EXPECT_EQ(node({99}), -1);
  EXPECT_EQ(node({}), -1);
}

TEST(Cores, TheMaskIsObeyed) {
  const std::vector<int> all = allowed_cores();
  ASSERT_FALSE(all.empty());
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(all.back(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(allowed_cores(), std::vector<int>{all.back()});
    EXPECT_EQ(usable_cores(), 1);
  }).join();
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(all.size()));
}

}  // namespace cores_test
}  // namespace magister
