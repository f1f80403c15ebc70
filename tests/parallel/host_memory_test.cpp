// The limits of a process's memory (the machine, a cgroup of either version at any level, Slurm's --mem), read from
// small trees of files.
#include "magister/parallel/host_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace magister {
namespace host_memory_test {

namespace fs = std::filesystem;
constexpr std::uint64_t kGB = std::uint64_t{1} << 30;
const std::string kMeminfo =
    "MemTotal:       67108864 kB\nMemFree:         1048576 kB\nMemAvailable:   50331648 kB\n";  // 64 and 48 GB

class Memory : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "magister-memory-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  HostMemory memory(const std::string& lines, std::uint64_t slurm = 0) {
    return read_host_memory(kMeminfo, lines, root_.string(), {slurm});
  }
  fs::path root_;
};

TEST_F(Memory, WithoutLimitsItIsTheMachines) {
  write("memory.max", "max\n");
  for (const char* lines : {"0::/\n", "0::/absent/group\n", "", "garbage\n:\n"}) {
    EXPECT_EQ(memory(lines).total_bytes, 64 * kGB) << lines;
    EXPECT_EQ(memory(lines).free_bytes, 48 * kGB) << lines;
    EXPECT_EQ(memory(lines).limited_by, "");
  }
}

TEST_F(Memory, ASlurmJobsGroupLimitsItsSteps) {  // version 2, three levels below the root
  write("system.slice/slurmstepd.scope/job_7/memory.max", std::to_string(8 * kGB));
  write("system.slice/slurmstepd.scope/job_7/memory.current", std::to_string(3 * kGB));
  write("system.slice/slurmstepd.scope/job_7/step_0/memory.max", "max\n");
  const HostMemory found = memory("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n");
  EXPECT_EQ(found.total_bytes, 8 * kGB);
  EXPECT_EQ(found.free_bytes, 5 * kGB);
  EXPECT_EQ(found.limited_by, (root_ / "system.slice/slurmstepd.scope/job_7").string());
}

TEST_F(Memory, PagesOfFilesCountAsFree) {
  write("job/memory.max", std::to_string(8 * kGB));
  write("job/memory.current", std::to_string(7 * kGB));
  write("job/memory.stat",
        "anon 1073741824\ninactive_anon 99999999999\nactive_file 1073741824\ninactive_file 4294967296\n");
  EXPECT_EQ(memory("0::/job\n").free_bytes, 6 * kGB);
}

TEST_F(Memory, Version1AndContainers) {
  write("memory/slurm/uid_1/job_7/memory.limit_in_bytes", std::to_string(16 * kGB));
  write("memory/slurm/uid_1/job_7/memory.usage_in_bytes", std::to_string(4 * kGB));
  write("memory/slurm/uid_1/job_7/memory.stat", "total_inactive_file 1073741824\n");
  write("memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  const HostMemory found = memory("9:cpu,cpuacct:/\n4:memory:/slurm/uid_1/job_7/step_0/task_0\n0::/\n");
  EXPECT_EQ(found.total_bytes, 16 * kGB);
  EXPECT_EQ(found.free_bytes, 13 * kGB);
  // A container's own group is mounted as the root, and the path in its cgroup file does not exist there.
  write("memory/memory.limit_in_bytes", std::to_string(2 * kGB));
  EXPECT_EQ(memory("4:memory:/docker/0123\n").total_bytes, 2 * kGB);
}

TEST_F(Memory, TheLeastOfAllLimitsHolds) {
  write("a/memory.max", std::to_string(4 * kGB));
  write("a/b/memory.max", std::to_string(30 * kGB));
  EXPECT_EQ(memory("0::/a/b\n").total_bytes, 4 * kGB);
  EXPECT_EQ(memory("0::/a/b\n", 2 * kGB).total_bytes, 2 * kGB);
  EXPECT_EQ(memory("0::/a/b\n", 2 * kGB).limited_by, "Slurm's --mem");
  EXPECT_EQ(memory("0::/a/b\n", 20 * kGB).total_bytes, 4 * kGB);
}

TEST_F(Memory, TheSlurmOptionThatSetTheLimitIsNamed) {
  const char* const names[] = {"SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"};
  std::vector<std::optional<std::string>> before;
  for (const char* name : names) {
    const char* text = std::getenv(name);
    before.push_back(text == nullptr ? std::nullopt : std::optional<std::string>(text));
    unsetenv(name);
  }
  EXPECT_EQ(slurm_memory().bytes, 0u);
  setenv("SLURM_MEM_PER_CPU", "1024", 1);
  setenv("SLURM_CPUS_ON_NODE", "3", 1);
  const HostMemory by_cpu = read_host_memory(kMeminfo, "", root_.string(), slurm_memory());
  EXPECT_EQ(by_cpu.total_bytes, 3 * kGB);
  EXPECT_EQ(by_cpu.limited_by, "Slurm's --mem-per-cpu");
  setenv("SLURM_MEM_PER_NODE", "2048", 1);
  const HostMemory by_node = read_host_memory(kMeminfo, "", root_.string(), slurm_memory());
  EXPECT_EQ(by_node.total_bytes, 2 * kGB);
  EXPECT_EQ(by_node.limited_by, "Slurm's --mem");
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i]) {
      setenv(names[i], before[i]->c_str(), 1);
    } else {
      unsetenv(names[i]);
    }
  }
}

TEST(HostMemory, IsThatOfThisMachine) {
  const HostMemory here = host_memory();
  EXPECT_GT(here.free_bytes, 0u);
  EXPECT_LE(here.free_bytes, here.total_bytes);
}

}  // namespace host_memory_test
}  // namespace magister
