// Where each rank logs: rank 0 for the world on standard error, every rank into its own file with time stamps.
#include "magister/core/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>
#include <vector>

#include "magister/core/error.h"

namespace magister {
namespace log_test {

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Log : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("magister_log_{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    set_log_identity(0, 1);
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_;
};

// Whoever forgets printable(): no control character of a message reaches the terminal or the rank's file.
TEST_F(Log, ControlCharactersNeverLeave) {
  testing::internal::CaptureStderr();
  set_log_identity(0, 1);
  open_rank_log(folder_);
  const std::string foreign =
      "x\x1B]0;title\x07\xC2\x9B"
      "2Jy";
  log_info("{}", foreign);
  log_warning("{}\nsecond line", foreign);
  log_local(LogLevel::kError, "{}", foreign);
  const std::string said = testing::internal::GetCapturedStderr();
  for (const std::string& text : {said, file_text(folder_ / "rank-0000.log")}) {
    EXPECT_EQ(text.find_first_of(std::string("\x1B\x07", 2)), std::string::npos) << text;
    EXPECT_EQ(text.find("\xC2\x9B"), std::string::npos) << text;
    EXPECT_NE(text.find("x\\x1B]0;title\\x07\\xC2\\x9B2Jy"), std::string::npos) << text;
  }
  EXPECT_NE(said.find("\nmagister: warning: second line\n"), std::string::npos) << said;
}

TEST_F(Log, RankZeroSpeaksForTheWorld) {
  testing::internal::CaptureStderr();
  set_log_identity(1, 4);
  log_info("not mine to say");
  log_local(LogLevel::kInfo, "dropped: no file yet");
  log_local(LogLevel::kError, "{} of rank one", "error");
  set_log_identity(0, 4);
  log_info("said once");
  log_warning("careful");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "magister: rank 1 of 4: error of rank one\nsaid once\nmagister: warning: careful\n");
}

TEST_F(Log, EveryRankWritesItsFile) {
  testing::internal::CaptureStderr();
  set_log_identity(12, 16);
  open_rank_log(folder_ / "logs");
  log_info("world");
  log_local(LogLevel::kDebug, "not a detail of everybody");
  set_verbosity(Verbosity::kVerbose);
  log_local(LogLevel::kDebug, "detail");
  set_verbosity(Verbosity::kNormal);
  log_local(LogLevel::kInfo, "unit {}", 3);
  const std::string text = file_text(folder_ / "logs" / "rank-0012.log");
  const std::string stamp = R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d )";
  EXPECT_TRUE(
      std::regex_match(text, std::regex(stamp + "info world\n" + stamp + "debug detail\n" + stamp + "info unit 3\n")))
      << text;
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "debug: rank 12 of 16: detail\n");
  EXPECT_THROW(open_rank_log("/proc/nowhere"), Error);
}

TEST_F(Log, QuietIsWarningsAndErrors) {
  testing::internal::CaptureStderr();
  set_log_identity(0, 4);
  set_verbosity(Verbosity::kQuiet);
  log_info("not now");
  show_live_line("10 %");
  log_warning("careful");
  set_verbosity(Verbosity::kNormal);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "magister: warning: careful\n");
}

TEST_F(Log, ThreadsDoNotMixTheirLines) {
  set_log_identity(0, 1);
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) log_info("{}", std::string(100, static_cast<char>('a' + t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::istringstream lines(testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(line, std::string(100, line[0]));
  EXPECT_EQ(count, 1600);
}

TEST_F(Log, MessagesStandAboveTheLiveLine) {
  set_log_identity(0, 1);
  testing::internal::CaptureStderr();
  show_live_line("10 %");
  log_info("news");
  show_live_line("");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "\r\x1b[K10 %\r\x1b[Knews\n10 %\r\x1b[K");
}

}  // namespace log_test
}  // namespace magister
