// Shared by the tests of NVML: the file with the answers of fake_nvml.cpp.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace magister {

// A healthy GPU with everything that is measured.
inline const char* const kHealthy =
    "utilization 93\nmemory_busy 41\nmemory_total 85899345920\nmemory_used 64424509440\ntemperature 61\nslowdown 87\n"
    "power 412500\npower_limit 700000\nenergy 5000000\nsm_clock 1980\nmemory_clock 2619\nthrottle 4\necc 0\n"
    "processes 2\npcie_sent 1500\npcie_received 2500\nnvlink_sent 10\nnvlink_received 20\n";

class FakeGpu {
 public:
  explicit FakeGpu(const std::string& name, const std::string& more = "")
      : path_((std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()) + ".nvml")).string()) {
    set(kHealthy + more);
    ::setenv("MAGISTER_FAKE_NVML", path_.c_str(), 1);
  }
  ~FakeGpu() { std::filesystem::remove(path_); }
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  void set(const std::string& text) const { std::ofstream(path_) << text; }
  // Adds lines. If two lines have one name, the last one counts.
  void also(const std::string& lines) const { std::ofstream(path_, std::ios::app) << lines; }

 private:
  std::string path_;
};

}  // namespace magister
