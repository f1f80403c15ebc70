// main() of every test program. --file NAME_test.cpp: only the tests of that file, as CTest runs them; with a filter,
// as an argument or in GTEST_FILTER, its exclusions still apply, and tests that it names run alone. --mpi: on several
// ranks, MPI around GoogleTest; a failure on any rank fails the test. Other arguments are GoogleTest's.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "magister/core/log.h"
#include "magister/parallel/communicator.h"

namespace {

// Takes `name` and its `values` following arguments out of argv; nullptr where it is not there, else the last of them.
const char* take_argument(int& argc, char** argv, const char* name, int values) {
  for (int i = 1; i + values < argc; ++i) {
    if (std::strcmp(argv[i], name) != 0) continue;
    const char* last = argv[i + values];
    for (int j = i; j + values + 1 <= argc; ++j) argv[j] = argv[j + values + 1];
    argc -= values + 1;
    return last;
  }
  return nullptr;
}

// False: the file has no test, which is an error of the test's registration.
bool choose_tests_of(const std::string& file) {
  const std::string wanted = testing::GTEST_FLAG(filter);
  const std::size_t left_out = std::min(wanted.find('-'), wanted.size());
  if (const std::string named = wanted.substr(0, left_out); !named.empty() && named != "*") return true;
  std::string chosen;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (std::filesystem::path(test.file()).filename() == file)
        chosen += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  if (chosen.empty()) {
    std::fprintf(stderr,
                 "no test stands in %s (a test that runs nothing would pass); correct its line in CMakeLists.txt\n",
                 file.c_str());
    return false;
  }
  testing::GTEST_FLAG(filter) = chosen + wanted.substr(left_out);
  return true;
}

void print_failures_of_other_ranks() {  // one list of tests is enough
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  struct OnlyFailures : testing::EmptyTestEventListener {
    void OnTestPartResult(const testing::TestPartResult& result) override {
      if (!result.failed()) return;
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", magister::log_world_rank(), result.file_name(), result.line_number(),
                   result.summary());
    }
  };
  listeners.Append(new OnlyFailures);
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<magister::MpiSession> session;
  if (take_argument(argc, argv, "--mpi", 0) != nullptr) session.emplace(&argc, &argv);
  const char* const file = take_argument(argc, argv, "--file", 1);
  testing::InitGoogleTest(&argc, argv);
  if (file != nullptr && !choose_tests_of(file)) return 1;
  if (!session) return RUN_ALL_TESTS();
  const auto world = magister::Communicator::world();
  magister::set_log_identity(world.rank(), world.size());
  if (world.rank() != 0) print_failures_of_other_ranks();
  const int failed = RUN_ALL_TESTS();
  // A rank whose test threw leaves the others inside a collective call: the job must end, not wait for CTest's
  // patience.
  const auto begin = std::chrono::steady_clock::now();
  world.wait_for_all([&] {
    if (failed != 0 && std::chrono::steady_clock::now() - begin > std::chrono::seconds(10)) magister::abort_job(1);
  });
  return world.max(static_cast<std::uint64_t>(failed != 0)) != 0 ? 1 : 0;
}
