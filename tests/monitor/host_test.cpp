// Readings of /proc: a folder with known numbers, and the kernel's own.
#include "magister/monitor/host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace magister {
namespace {

class Proc {
 public:
  Proc() : folder_(std::filesystem::temp_directory_path() / ("proc" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_ / "self");
    std::filesystem::create_directories(folder_ / "net");
  }
  ~Proc() { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  std::string path() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

TEST(Host, ReadsTheFilesOfProc) {
  const Proc proc;
  proc.write("self/stat", "4711 (a (b) c) R 1 1 1 0 -1 4194304 100 0 0 0 1500 500 0 0 20 0 3 0 100 1000 2000\n");
  proc.write("self/statm", "50000 3000 100 1 0 2000 0\n");
  proc.write("self/io", "rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n");
  proc.write("stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1\n");
  proc.write("meminfo", "MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:   500 kB\n");
  proc.write("net/dev",
             "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 99 1 0 0 0 0 0 0 99 1 0 0 0 0 0 0\n"
             "  eth0: 1000 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0\n  ib0: 7 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n");
  HostReader reader(proc.path());
  const Readings first = reader.read();
  EXPECT_DOUBLE_EQ(*reading(first, "cpu_seconds_total"), 2000.0 / static_cast<double>(::sysconf(_SC_CLK_TCK)));
  EXPECT_DOUBLE_EQ(*reading(first, "resident_memory_bytes"), 3000.0 * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  EXPECT_DOUBLE_EQ(*reading(first, "read_bytes_total"), 4096);
  EXPECT_DOUBLE_EQ(*reading(first, "written_bytes_total"), 8192);
  EXPECT_DOUBLE_EQ(*reading(first, "host_memory_available_bytes"), 500 * 1024);
  EXPECT_DOUBLE_EQ(*reading(first, "host_network_receive_bytes_total"), 1007);
  EXPECT_DOUBLE_EQ(*reading(first, "host_network_transmit_bytes_total"), 305);
  EXPECT_FALSE(reading(first, "host_cpu_ratio")) << "a share needs two readings";
  proc.write("stat", "cpu  400 0 100 800 100 0 0 0 0 0\n");
  EXPECT_DOUBLE_EQ(*reading(reader.read(), "host_cpu_ratio"), 0.75);
}

TEST(Host, WhatCannotBeReadIsAbsent) {
  EXPECT_TRUE(HostReader("/nonexistent").read().empty());
  const Proc proc;
  proc.write("self/stat", "nonsense");
  proc.write("self/statm", "");
  proc.write("stat", "cpu\n");
  EXPECT_TRUE(HostReader(proc.path()).read().empty());
}

TEST(Host, OwnProcess) {
  HostReader reader;
  const Readings before = reader.read();
  ASSERT_TRUE(reading(before, "cpu_seconds_total") && reading(before, "resident_memory_bytes"));
  const std::vector<char> block(64 << 20, 1);
  const Readings after = reader.read();
  EXPECT_GT(*reading(after, "resident_memory_bytes"), *reading(before, "resident_memory_bytes") + 60e6);
  EXPECT_EQ(block[1000], 1);
}

}  // namespace
}  // namespace magister
