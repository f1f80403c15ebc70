// Closed forms of the estimate; what is measured is only looked at for being a number.
#include "magister/run/time_estimate.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <utility>

namespace magister {
namespace time_estimate_test {

TEST(TimeEstimate, CountsProducts) { EXPECT_DOUBLE_EQ(flops_of({100, 10, 1, 1}, 1e6), 226e6); }

TEST(TimeEstimate, WrittenTokensWaitForWeightsOrProducts) {
  const Speed speed{1e12, 1e11};
  EXPECT_DOUBLE_EQ(seconds_of({1000, 0, 0, 1}, 1e9, 4e9, speed, 1), 2.0);
  EXPECT_DOUBLE_EQ(seconds_of({0, 0, 1000, 1}, 1e9, 4e9, speed, 2), 3.0);
  EXPECT_DOUBLE_EQ(seconds_of({0, 320, 0, 32}, 1e9, 4e9, speed, 1),
                   0.64);  // 10 steps read 40 GB in 0.4 s, the products take 0.64 s
  EXPECT_DOUBLE_EQ(seconds_of({0, 320, 0, 8}, 1e9, 4e9, speed, 1), 1.6);
}

enum class Fault { kBadAlloc, kHostAllocator, kOther };

// Throws for all tensors of more than a MB.
class FailingAllocator final : public c10::Allocator {
 public:
  explicit FailingAllocator(Fault fault) : fault_(fault), before_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(this, 1);
  }
  ~FailingAllocator() override { c10::SetCPUAllocator(before_, 1); }
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes <= 1 << 20) return before_->allocate(bytes);
    if (fault_ == Fault::kBadAlloc) throw std::bad_alloc();
    TORCH_CHECK(fault_ != Fault::kHostAllocator, "DefaultCPUAllocator: not enough memory: you tried to allocate ",
                bytes);
    TORCH_CHECK(false, "another fault");
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  Fault fault_;
  c10::Allocator* before_;
};

// Products are measured with 0.6 MB, reads with 64 MiB per core. Every queue of the host has a figure of its own.
TEST(TimeEstimate, ZerosWithoutMemory) {
  for (const auto& [device, fault] : {std::pair(-2, Fault::kBadAlloc), {-3, Fault::kHostAllocator}}) {
    const FailingAllocator failing(fault);
    const Speed speed = measured_speed({.device = device}, true);
    EXPECT_EQ(speed.flops, 0) << device;
    EXPECT_EQ(speed.bytes_per_second, 0) << device;
  }
  const FailingAllocator failing(Fault::kOther);
  EXPECT_THROW(measured_speed({.device = -4}, true), c10::Error);
}

TEST(TimeEstimate, MeasuresThisHost) {
  const Speed of_products = measured_speed({}, false);
  EXPECT_GT(of_products.flops, 1e8);
  EXPECT_EQ(of_products.bytes_per_second, 0);
  EXPECT_DOUBLE_EQ(seconds_of({1000, 0, 0, 1}, 1e9, 4e9, of_products, 1), 2e12 / of_products.flops);
  const Speed of_both = measured_speed({}, true);
  EXPECT_EQ(of_both.flops, of_products.flops);
  EXPECT_GT(of_both.bytes_per_second, 1e8);
  EXPECT_EQ(measured_speed({}, true).bytes_per_second, of_both.bytes_per_second);
}

}  // namespace time_estimate_test
}  // namespace magister
