// The service as its routes see it.
#pragma once

#include <atomic>
#include <chrono>

#include "magister/serve/service.h"
#include "serve/access.h"
#include "serve/devices.h"
#include "serve/job_store.h"

namespace magister {

class Service {
 public:
  explicit Service(const ServeOptions& options);
  const ServeOptions& options() const { return options_; }
  JobStore& store() { return store_; }
  Devices& devices() { return devices_; }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count(); }
  std::atomic<std::uint64_t> requests{0}, refused{0};

 private:
  const ServeOptions& options_;
  JobStore store_;
  Devices devices_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

}  // namespace magister
