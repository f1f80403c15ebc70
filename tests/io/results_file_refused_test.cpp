// Refuses, by name and with its exit code, a file in a results file's place, results of another experiment, and damaged
// or locked files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/results/layout.h"
#include "io/small_results_file.h"
#include "magister/core/host_name.h"
#include "magister/io/results/reader.h"
#include "magister/io/results/results_file.h"
#include "magister/io/results/tools.h"

namespace magister {
namespace results_file_refused_test {

TEST_F(ResultsFileTest, OtherThingsInThePlaceOfTheFile) {
  for (const char* suffix : {"", ".partial"}) {
    const std::string place = path_ + suffix;
    if (is_root()) fs::create_directory(place);
    world_.barrier();
    expect_refusal(ExitCode::kInputOutput, "is a folder",
                   [&](const Communicator&) { ResultsFile::state_on_disk(path_); });
    if (is_root()) {
      fs::remove(place);
      fs::create_symlink(folder_ / "elsewhere.h5", place);
    }
    world_.barrier();
    expect_refusal(ExitCode::kInputOutput, "symbolic link",
                   [&](const Communicator&) { ResultsFile::state_on_disk(path_); });
    if (is_root()) {
      fs::remove(place);
      ASSERT_EQ(::mkfifo(place.c_str(), 0600), 0);
    }
    world_.barrier();
    expect_refusal(ExitCode::kInputOutput, "no regular file",
                   [&](const Communicator&) { ResultsFile::state_on_disk(path_); });
    if (is_root()) fs::remove(place);
    world_.barrier();
  }
  if (is_root()) fs::create_symlink(folder_ / "elsewhere.h5", path_ + ".creating");
  world_.barrier();
  expect_refusal(ExitCode::kInputOutput, "symbolic link",
                 [&](const Communicator& alone) { ResultsFile::create(alone, path_, small_spec()); });
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere.h5"));
}

TEST_F(ResultsFileTest, CompleteNeverReplacesAFile) {
  ResultsFile file = create();
  fill_pending(file);
  if (is_root()) std::ofstream(path_) << "of somebody else";
  world_.barrier();
  expect_refusal(ExitCode::kInputOutput, "never overwritten", [&](const Communicator& alone) { file.complete(alone); });
  if (is_root()) {
    EXPECT_EQ(bytes_of(path_), "of somebody else");
  }
}

TEST_F(ResultsFileTest, OtherAttributesAreRefusedByName) {
  {
    const ResultsFile file = create();
  }
  Attributes other = kIdentity;
  other[0].second = std::string("decaf");
  expect_refusal(ExitCode::kConfig, "its config_sha256 is c0ffee, this run's is decaf",
                 [&](const Communicator& alone) { ResultsFile::resume(alone, path_, other); });
  other = kIdentity;
  other.emplace_back("seed", std::uint64_t{3});
  expect_refusal(ExitCode::kConfig, "its seed is absent, this run's is 3",
                 [&](const Communicator& alone) { ResultsFile::resume(alone, path_, other); });
}

TEST_F(ResultsFileTest, DamagedPartialFilesAreRefusedByName) {
  std::uint64_t offsets_at = 0, flags_at = 0, layout_at = 0;
  {
    ResultsFile file = create();
    if (is_root()) {  // finds the columns' places by their bytes
      const std::string bytes = bytes_of(path_ + ".partial");
      const std::uint64_t offsets[] = {0, 3, 3, 5, 9, 9, 10}, begins[] = {0, 2, 4, 6};
      offsets_at = bytes.find(std::string(reinterpret_cast<const char*>(offsets), sizeof offsets));
      flags_at = bytes.find(std::string(reinterpret_cast<const char*>(begins), sizeof begins)) + sizeof begins;
      layout_at = bytes.find(layout_sha256(read_layout(path_ + ".partial")));
      ASSERT_NE(offsets_at, std::string::npos);
      ASSERT_NE(layout_at, std::string::npos);
    }
  }
  const std::string good = is_root() ? bytes_of(path_ + ".partial") : "";
  const auto with = [&](std::uint64_t at, char value, const std::string& words) {
    if (is_root()) {
      std::string bad = good;
      bad[at] = value;
      std::ofstream(path_ + ".partial", std::ios::binary) << bad;
    }
    world_.barrier();
    expect_resume_refused(words);
  };
  with(offsets_at + 8, 99, "/samples/offset[2] is 3 after 99");
  with(offsets_at + 8, 2, "the plan (/samples/offset, /commit/unit_begin) has crc32c");
  with(offsets_at + 48, 11, "num_tokens");
  with(flags_at, 7, "unit 0 has the done flag 7");
  with(layout_at, 'x', "are not those the file was made with (layout_sha256)");
  for (const std::size_t length : {good.size() - 1, good.size() / 2, std::size_t{100}, std::size_t{0}}) {
    if (is_root()) std::ofstream(path_ + ".partial", std::ios::binary) << good.substr(0, length);
    world_.barrier();
    expect_resume_refused(path_ + ".partial");
  }
  if (is_root()) std::ofstream(path_ + ".partial", std::ios::binary) << good;
  world_.barrier();
  EXPECT_EQ(ResultsFile::resume(world_, path_, kIdentity).pending_units().size(), 3u);
}

// The small file lacks /samples/source_index, as a file of another program may.
TEST_F(ResultsFileTest, AColumnThatAForeignFileLacksIsAFaultOfTheFile) {
  {
    ResultsFile file = create();
    fill_pending(file);
    file.complete(world_);
  }
  const std::string out = path_ + ".out";
  expect_refusal(ExitCode::kData, "/samples/source_index",
                 [&](const Communicator&) { export_jsonl(open_complete_results(path_), {}, out); });
  expect_refusal(ExitCode::kData, "/samples/source_index",
                 [&](const Communicator&) { export_parquet(open_complete_results(path_), {}, out); });
  if (is_root()) {
    EXPECT_FALSE(fs::exists(out));
  }
  const ResultsReader file(path_);
  expect_refusal(ExitCode::kData, "/none is missing",
                 [&](const Communicator&) { file.for_each_piece("/none", {0, 1}, [](auto, auto) {}); });
  expect_refusal(ExitCode::kData, "/none is missing",
                 [&](const Communicator&) { file.for_each_text("/none", {0, 1}, [](auto, auto) {}); });
  expect_refusal(ExitCode::kData, "/none is missing",
                 [&](const Communicator&) { const ResultsTextColumn column(file, "/none"); });
}

TEST_F(ResultsFileTest, RowsOutsideAreRefused) {
  ResultsFile file = create();
  const std::vector<std::byte> row(12);
  EXPECT_THROW(file.write("/values/wide", 10, row), Error);
  EXPECT_THROW(file.write("/values/wide", ~0ull, row), Error);
  EXPECT_THROW(file.write("/values/wide", 0, std::vector<std::byte>(11)), Error);
  EXPECT_THROW(file.write("/values/none", 0, row), Error);
  EXPECT_THROW(file.unit(3), Error);
}

TEST_F(ResultsFileTest, LockIsGoneAfterItsLastHolder) {
  {
    const ResultsLock lock(world_, path_);
    EXPECT_TRUE(fs::exists(path_ + ".lock"));
    // A second run on this host: it has another open file, so flock separates them even in this process.
    expect_refusal(ExitCode::kInputOutput, "another run holds it: process",
                   [&](const Communicator& alone) { const ResultsLock second(alone, path_); });
  }
  world_.barrier();
  EXPECT_FALSE(fs::exists(path_ + ".lock"));
}

TEST_F(ResultsFileTest, LockTakesOverFromTheDead) {
  if (is_root()) {
    std::ofstream(path_ + ".lock") << R"({"host": "elsewhere", "pid": 1, "since": "yesterday"})";
  }
  world_.barrier();
  const ResultsLock lock(world_, path_);  // no process locks it: the text alone has no effect
  std::string text;
  std::getline(std::ifstream(path_ + ".lock"), text);
  EXPECT_THAT(text, HasSubstr(host_name()));
}

TEST_F(ResultsFileTest, LockFileWithoutSense) {
  for (const char* text : {"", "{", "[1]", R"({"pid": "x"})", R"({"pid": -1, "launcher": 18446744073709551615})"}) {
    if (!is_root()) continue;
    const int holder = ::open((path_ + ".lock").c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_EQ(::ftruncate(holder, 0), 0);
    ASSERT_EQ(::pwrite(holder, text, std::strlen(text), 0), static_cast<ssize_t>(std::strlen(text)));
    ASSERT_EQ(::flock(holder, LOCK_SH), 0);
    const Communicator alone;
    try {
      const ResultsLock lock(alone, path_);
      ADD_FAILURE() << "taken from a holder that says " << text;
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), 74) << error.what();
    }
    ::close(holder);
  }
  world_.barrier();
}

}  // namespace results_file_refused_test
}  // namespace magister
