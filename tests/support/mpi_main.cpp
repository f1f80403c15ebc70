// main() of tests that run on several ranks: MPI around GoogleTest; a failure on any rank fails the test.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "magister/core/log.h"
#include "magister/parallel/communicator.h"

int main(int argc, char** argv) {
  magister::MpiSession session(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  const auto world = magister::Communicator::world();
  magister::set_log_identity(world.rank(), world.size());
  if (world.rank() != 0) {  // one list of tests is enough; failures of the others are still printed
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    struct OnlyFailures : testing::EmptyTestEventListener {
      void OnTestPartResult(const testing::TestPartResult& result) override {
        if (!result.failed()) return;
        std::fprintf(stderr, "rank %d: %s:%d: %s\n", magister::log_world_rank(), result.file_name(),
                     result.line_number(), result.summary());
      }
    };
    listeners.Append(new OnlyFailures);
  }
  const int failed = RUN_ALL_TESTS();
  // A rank whose test threw leaves the others inside a collective call: the job must end, not wait for CTest's
  // patience.
  const auto begin = std::chrono::steady_clock::now();
  world.wait_for_all([&] {
    if (failed != 0 && std::chrono::steady_clock::now() - begin > std::chrono::seconds(10)) magister::abort_job(1);
  });
  return world.max(static_cast<std::uint64_t>(failed != 0)) != 0 ? 1 : 0;
}
