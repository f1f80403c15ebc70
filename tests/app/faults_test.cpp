// How the program reports errors that are not its own. To simulate that the system has no further thread, this
// executable defines pthread_create, which comes before the C library's and fails on request.
#include "app/faults.h"

#include <ATen/Functions.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <thread>

#include "io/small_results_file.h"
#include "magister/parallel/side_by_side.h"
#include "magister/parallel/unit_tickets.h"
#include "magister/run/unit_writer.h"

namespace {
std::atomic<int> threads_left{1 << 30};
}

// NOLINTNEXTLINE: the C library's name
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  if (threads_left.fetch_sub(1) <= 0) return EAGAIN;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, body, argument);
}

namespace magister {
namespace faults_test {

class NoThreads : public ResultsFileTest {
 protected:
  static void allow(int threads) { threads_left = threads; }
  void TearDown() override {
    allow(1 << 30);
    ResultsFileTest::TearDown();
  }
};

TEST_F(NoThreads, NoShardBeginsThatWouldWaitForOneThatIsNotThere) {
  std::atomic<int> begun{0};
  allow(2);
  EXPECT_THROW(run_side_by_side(4, [&](std::size_t) { ++begun; }), std::system_error);
  EXPECT_EQ(begun, 0);
  allow(3);
  run_side_by_side(4, [&](std::size_t) { ++begun; });
  EXPECT_EQ(begun, 4);
}

TEST_F(NoThreads, TheReasonNamesTheLimits) {
  allow(0);
  try {
    std::thread([] {}).join();
    ADD_FAILURE() << "a thread was started";
  } catch (const std::exception& error) {
    const Fault fault = fault_of(error);
    EXPECT_EQ(fault.code, ExitCode::kConfig);
    EXPECT_THAT(fault.message, HasSubstr("ulimit -u"));
  }
}

TEST(Faults, MemoryThatTensorsDoNotGet) {
  try {
    const at::Tensor none = at::empty({std::int64_t{1} << 47}, at::kByte);
    ADD_FAILURE() << "128 TiB were given";
  } catch (const std::exception& error) {
    EXPECT_THAT(fault_of(error).message, testing::StartsWith("out of memory (")) << error.what();
  }
}

TEST_F(NoThreads, AUnitIsWrittenAllTheSame) {
  ResultsFile file = create();
  UnitTickets tickets(world_, file.pending_units(), Schedule::kStatic, 0, 1);
  allow(0);
  {
    UnitWriter writer(file, tickets);
    for (const std::uint64_t index : file.pending_units()) {
      const Unit unit = file.unit(index);
      std::vector<float> wide(3 * unit.rows.size(), 1.5f + static_cast<float>(index));
      std::vector<std::uint8_t> byte(unit.rows.size(), 7);
      const auto bytes = [](const auto& values) {
        const auto span = std::as_bytes(std::span(values));
        return std::vector<std::byte>(span.begin(), span.end());
      };
      writer.submit(unit, {{"/values/wide", bytes(wide)}, {"/values/byte", bytes(byte)}});
    }
    writer.drain();
  }
  allow(1 << 30);
  EXPECT_EQ(tickets.progress().units_done, 3U);
  std::vector<float> last(3);
  file.read("/values/wide", 9, std::as_writable_bytes(std::span(last)));
  EXPECT_EQ(last, std::vector<float>(3, 3.5f));
  tickets.free([] {});
}

}  // namespace faults_test
}  // namespace magister
