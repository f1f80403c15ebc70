// Kernels that a test means, whatever this CPU would choose; the choice comes back at the scope's end.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "magister/model/cpu/cpu_kernels.h"

namespace magister {

class TheseKernels {
 public:
  explicit TheseKernels(const CpuKernels& kernels) : before_(cpu_kernels()) { use_cpu_kernels(kernels); }
  ~TheseKernels() { use_cpu_kernels(before_); }
  TheseKernels(const TheseKernels&) = delete;
  TheseKernels& operator=(const TheseKernels&) = delete;

 private:
  const CpuKernels& before_;
};

}  // namespace magister
