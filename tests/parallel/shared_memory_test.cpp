// Ranks of a host see what the others have written; who cannot see it makes none for all.
#include "magister/parallel/shared_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace magister {
namespace shared_memory_test {

TEST(SharedMemory, EveryRankSeesWhatEveryOtherWrites) {
  const Communicator world = Communicator::world();
  constexpr std::size_t kNumbers = 3 * 1024 * 1024 + 17;
  const std::shared_ptr<SharedMemory> memory = SharedMemory::make(world, kNumbers * sizeof(std::uint64_t));
  ASSERT_NE(memory, nullptr);
  auto* const numbers = reinterpret_cast<std::uint64_t*>(memory->data());
  EXPECT_TRUE(std::all_of(numbers, numbers + kNumbers, [](std::uint64_t number) { return number == 0; }));
  world.barrier();
  const auto me = static_cast<std::size_t>(world.rank()), all = static_cast<std::size_t>(world.size());
  for (std::size_t i = me; i < kNumbers; i += all) numbers[i] = i * 7 + 1;
  world.barrier();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kNumbers; ++i) wrong += numbers[i] == i * 7 + 1 ? 0 : 1;
  EXPECT_EQ(wrong, 0u);
  world.barrier();
}

TEST(SharedMemory, OneIsNotAnother) {
  const Communicator world = Communicator::world();
  const std::shared_ptr<SharedMemory> one = SharedMemory::make(world, 4096), two = SharedMemory::make(world, 4096);
  ASSERT_NE(one, nullptr);
  ASSERT_NE(two, nullptr);
  if (world.rank() == 0) one->data()[4095] = std::byte{1};
  world.barrier();
  EXPECT_EQ(one->data()[4095], std::byte{1});
  EXPECT_EQ(two->data()[4095], std::byte{0});
  world.barrier();
}

// No address space has so much: it is refused on all ranks, and none throws.
TEST(SharedMemory, WhatCannotBeMappedIsNone) {
  EXPECT_EQ(SharedMemory::make(Communicator::world(), std::size_t{1} << 62), nullptr);
}

}  // namespace shared_memory_test
}  // namespace magister
