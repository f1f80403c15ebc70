#include "magister/core/child_process.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>

namespace magister {
namespace child_process_test {

constexpr std::size_t kMuch = 1 << 24;

TEST(AskProgram, BothStreamsAndTheExitCode) {
  const ProgramAnswer answer = ask_program({"sh", "-c", "pwd; echo fault >&2; exit 3"}, "/", 60, kMuch);
  EXPECT_EQ(answer.start_error, 0);
  EXPECT_EQ(answer.exit_code, 3);
  EXPECT_EQ(answer.output, "/\n");
  EXPECT_EQ(answer.errors, "fault\n");
}

TEST(AskProgram, MoreThanAPipeHoldsOnBothStreams) {
  const ProgramAnswer answer =
      ask_program({"sh", "-c", "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"}, "/", 60, 300000);
  EXPECT_EQ(answer.exit_code, 0);
  EXPECT_EQ(answer.output.size(), 300000u);
  EXPECT_EQ(answer.errors.size(), 300000u);
}

TEST(AskProgram, NoSuchProgram) {
  EXPECT_EQ(ask_program({"no-program-of-this-name"}, "/", 60, kMuch).start_error, ENOENT);
}

// The child of the child holds the pipe, too: both are ended.
TEST(AskProgram, IsEndedWhereItTakesTooLong) {
  const auto begun = std::chrono::steady_clock::now();
  const ProgramAnswer answer = ask_program({"sh", "-c", "sleep 300 & wait"}, "/", 0.3, kMuch);
  EXPECT_TRUE(answer.took_too_long);
  EXPECT_EQ(answer.exit_code, 128 + 9);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(200));
}

// Only what the process was started with: a variable that is set later, as MPI_Init does, is not passed on.
TEST(AskProgram, LaterVariablesAreNotPassedOn) {
  ASSERT_EQ(setenv("MAGISTER_SET_LATER", "1", 1), 0);
  const ProgramAnswer answer =
      ask_program({"sh", "-c", "echo \"${MAGISTER_SET_LATER:-none} ${PATH:+path}\""}, "/", 60, kMuch);
  EXPECT_EQ(answer.output, "none path\n");
}

}  // namespace child_process_test
}  // namespace magister
