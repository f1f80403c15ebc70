// main() of tests that run on several ranks: MPI around GoogleTest; a failure on any rank fails the test.
#include <gtest/gtest.h>

#include "magister/parallel/communicator.h"

int main(int argc, char** argv) {
  magister::MpiSession session(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  auto world = magister::Communicator::world();
  const int failed = RUN_ALL_TESTS();
  return world.max(static_cast<std::uint64_t>(failed != 0)) != 0 ? 1 : 0;
}
