// Errors of any type on any one rank are those of all ranks.
#include "magister/io/agreed_errors.h"

#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include "magister/core/error.h"

namespace magister {
namespace agreed_errors_test {

struct Case {
  std::function<void()> fails;
  ExitCode code;
  std::string words;
};

const Case kCases[] = {
    {[] { throw Error(ExitCode::kData, "line 7: is bad"); }, ExitCode::kData, "line 7: is bad"},
    {[] { throw std::bad_alloc(); }, ExitCode::kInternal, "the memory is used up"},
    {[] { throw std::out_of_range("index 9"); }, ExitCode::kInternal, "index 9 (the program did not expect it)"}};

void expect_error(const Case& one, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "went on: " << one.words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), one.code) << error.what();
    EXPECT_NE(std::string(error.what()).find(one.words), std::string::npos) << error.what();
  }
}

TEST(AgreedErrors, OfAnyTypeOnAnyRankAreEveryRanks) {
  const Communicator world = Communicator::world();
  for (int rank = 0; rank < world.size(); ++rank) {
    for (const Case& one : kCases) {
      expect_error(one, [&] {
        run_agreed(world, [&] {
          if (world.rank() == rank) one.fails();
        });
      });
    }
  }
  run_agreed(world, [] {});
}

TEST(AgreedErrors, OfRankZeroAloneAreEveryRanks) {
  const Communicator world = Communicator::world();
  for (const Case& one : kCases) expect_error(one, [&] { run_on_rank_zero(world, one.fails); });
  int calls = 0;
  run_on_rank_zero(world, [&] { ++calls; });
  EXPECT_EQ(calls, world.rank() == 0 ? 1 : 0);
}

}  // namespace agreed_errors_test
}  // namespace magister
