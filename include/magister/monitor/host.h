// Readings of this process and its host from /proc, by the names of rank_metrics(). Local.
#pragma once

#include <string>

#include "magister/monitor/metrics.h"

namespace magister {

// Reads the kernel's counters. What a kernel or a container does not show is absent from the readings.
class HostReader {
 public:
  // proc: the folder of the file system "proc"; a test names its own.
  explicit HostReader(std::string proc = "/proc") : proc_(std::move(proc)) {}
  Readings read();

 private:
  std::string proc_;
  double busy_ = 0, all_ = 0;  // ticks of the host's CPUs at the last call
};

}  // namespace magister
