// A whole file or nothing: a write that the system refuses, links in the way, a killed run's leftovers.
#include "magister/io/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "io/posix_file.h"
#include "magister/core/error.h"

namespace magister {
namespace whole_file_test {

namespace fs = std::filesystem;
using testing::HasSubstr;

class WholeFileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  static void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void expect_error(const std::string& words, const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "no error: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInputOutput) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }

  const fs::path folder_ = fs::temp_directory_path() / fmt::format("magister_whole_{}", ::getpid());
  const std::string path_ = (folder_ / "x.json").string(), creating_ = path_ + ".creating";
};

TEST_F(WholeFileTest, StandsThereWhole) {
  put(creating_, "of a run that died");
  write_whole_file(path_, "first");
  EXPECT_EQ(text_of(path_), "first");
  write_whole_file(path_, "second");
  EXPECT_EQ(text_of(path_), "second");
  EXPECT_FALSE(fs::exists(creating_));
}

TEST_F(WholeFileTest, AWriteThatIsRefusedLeavesWhatWasThere) {
  // The kernel refuses: what a full disk does, with another errno.
  std::signal(SIGXFSZ, SIG_IGN);
  put(path_, "of before");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error("ulimit -f", [&] { write_whole_file(path_, std::string(5000, 'x')); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(text_of(path_), "of before");
  EXPECT_FALSE(fs::exists(creating_));
}

TEST_F(WholeFileTest, NothingStaysOfWhatIsNotKept) {
  {
    WholeFile file(path_, WholeFile::Existing::kReplaced);
    file.write("half");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(WholeFileTest, LinksAreNotFollowed) {
  const std::string victim = (folder_ / "victim").string();
  put(victim, "untouched");
  fs::create_symlink(victim, creating_);
  expect_error("symbolic link", [&] { write_whole_file(path_, "text"); });
  EXPECT_TRUE(fs::is_symlink(creating_)) << "what we did not make is not removed";
  fs::remove(creating_);
  fs::create_symlink("/dev/full", creating_);
  expect_error("symbolic link", [&] { write_whole_file(path_, "text"); });
  fs::remove(creating_);
  fs::create_symlink(victim, path_);
  write_whole_file(path_, "text");
  EXPECT_FALSE(fs::is_symlink(path_)) << "the name is replaced, not what it led to";
  EXPECT_EQ(text_of(victim), "untouched");
}

TEST_F(WholeFileTest, WhatStandsThereIsRefusedWhereItMustNotBeReplaced) {
  put(path_, "of somebody else");
  expect_error("nothing is overwritten", [&] { WholeFile(path_, WholeFile::Existing::kRefused); });
  fs::remove(path_);
  WholeFile file(path_, WholeFile::Existing::kRefused);
  file.write("ours");
  put(path_, "of somebody who was faster");
  expect_error("nothing is overwritten", [&] { file.keep(); });
  fs::remove(path_);
  fs::create_directory(path_);
  expect_error("is a folder", [&] { write_whole_file(path_, "text"); });
}

TEST_F(WholeFileTest, FoldersAreMadeOrTheFaultIsNamed) {
  const std::string deep = (folder_ / "a/b/c").string();
  make_folders(deep);
  make_folders(deep + "/");
  EXPECT_TRUE(fs::is_directory(deep));
  put(path_, "a file");
  expect_error("x.json", [&] { make_folders(path_); });
  expect_error("x.json/below", [&] { make_folders(path_ + "/below"); });
}

TEST_F(WholeFileTest, FreeSpaceThatCannotBeReadIsNotZero) {
  require_free_bytes(path_, 1);
  expect_error("needs 18446744073709551615 bytes, ", [&] { require_free_bytes(path_, ~std::uint64_t{0}); });
  expect_error("reading the free space failed: No such file or directory",
               [&] { require_free_bytes((folder_ / "missing/x.h5").string(), 1); });
}

}  // namespace whole_file_test
}  // namespace magister
