// The ordered sum against ATen's additions one after another, for every type it takes, at lengths around its block.
#include "parallel/ordered_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "magister/core/error.h"

namespace magister {
namespace ordered_sum_test {

at::Tensor ordered_sum(const std::vector<at::Tensor>& parts) {
  std::vector<const std::byte*> pointers;
  for (const at::Tensor& part : parts) pointers.push_back(static_cast<const std::byte*>(part.const_data_ptr()));
  at::Tensor out = at::empty_like(parts[0]);
  add_in_shard_order(out.scalar_type(), pointers, static_cast<std::byte*>(out.data_ptr()),
                     static_cast<std::size_t>(out.numel()));
  return out;
}

TEST(OrderedSum, AddsAsAtenDoesOneAfterAnother) {
  at::manual_seed(3);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt, at::kLong}) {
    for (const std::int64_t count : {1, 3, 255, 256, 257, 1000}) {
      for (const int shards : {1, 2, 3, 5}) {
        std::vector<at::Tensor> parts;
        for (int s = 0; s < shards; ++s) parts.push_back((at::randn({count}, at::kDouble) * std::pow(5.0, s)).to(type));
        const bool narrow = type == at::kBFloat16 || type == at::kHalf;
        at::Tensor expected = parts[0].to(narrow ? at::kFloat : type).clone();
        for (int s = 1; s < shards; ++s) expected += parts[static_cast<std::size_t>(s)].to(expected.scalar_type());
        EXPECT_TRUE(at::equal(ordered_sum(parts), expected.to(type)))
            << c10::toString(type) << " " << count << " " << shards;
      }
    }
  }
}

TEST(OrderedSum, OrderMattersAndIsTheShards) {
  const auto f = [](float x) { return at::full({300}, x); };
  EXPECT_EQ(ordered_sum({f(1e8f), f(-1e8f), f(1)})[299].item<float>(), 1);
  EXPECT_EQ(ordered_sum({f(1), f(1e8f), f(-1e8f)})[299].item<float>(), 0);
  EXPECT_TRUE(std::signbit(ordered_sum({f(-0.0f), f(-0.0f)})[0].item<float>()));
}

TEST(OrderedSum, MayWriteOverAContribution) {
  at::Tensor a = at::arange(1000, at::kFloat), b = a * 3;
  add_in_shard_order(at::kFloat,
                     {static_cast<const std::byte*>(a.data_ptr()), static_cast<const std::byte*>(b.data_ptr())},
                     static_cast<std::byte*>(b.data_ptr()), 1000);
  EXPECT_TRUE(at::equal(b, a * 4));
}

TEST(OrderedSum, IntegersWrapAndOtherTypesAreRefused) {
  const at::Tensor most = at::full({2}, std::numeric_limits<std::int64_t>::max(), at::kLong);
  EXPECT_EQ(ordered_sum({most, at::ones({2}, at::kLong)})[0].item<std::int64_t>(),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_THROW(ordered_sum({at::ones({2}, at::kByte)}), Error);
}

}  // namespace ordered_sum_test
}  // namespace magister
