// ResultsFile on 1, 2 and 4 ranks: states on disk, commits, resume.
#include "magister/io/results/results_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/small_results_file.h"
#include "magister/core/file_descriptor.h"
#include "magister/core/sha256.h"
#include "magister/io/crc32c.h"

namespace magister {
namespace results_file_test {

TEST_F(ResultsFileTest, FromNothingToComplete) {
  EXPECT_EQ(ResultsFile::state_on_disk(path_), ResultsFile::State::kAbsent);
  world_.barrier();
  ResultsFile file = create();
  EXPECT_EQ(ResultsFile::state_on_disk(path_), ResultsFile::State::kPartial);
  EXPECT_FALSE(fs::exists(path_ + ".creating"));
  EXPECT_EQ(list_of(file.pending_units()), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(file.pending_rows(), 10u);
  const Unit unit = file.unit(1);
  EXPECT_EQ(unit.samples, (IndexRange{2, 4}));
  EXPECT_EQ(unit.rows, (IndexRange{3, 9}));
  fill_pending(file);
  std::vector<float> row(3);
  file.read("/values/wide", 7, std::as_writable_bytes(std::span(row)));
  EXPECT_EQ(row, (std::vector<float>{7, 7.25, 7.5}));
  file.complete(world_);
  EXPECT_EQ(ResultsFile::state_on_disk(path_), ResultsFile::State::kComplete);
  EXPECT_FALSE(fs::exists(path_ + ".partial"));
}

TEST_F(ResultsFileTest, ChecksumCoversTheUnitsBytesInTheOrderOfTheSpec) {
  ResultsFile file = create();
  if (is_root()) {
    const Unit unit = file.unit(2);  // samples 4 and 5, row 9
    fill(file, unit);
    file.commit(unit);
    std::string bytes("eeeeef\0\0\0\0", 10);
    const std::int32_t id = 9;
    const float wide[3] = {9, 9.25, 9.5};
    const std::uint8_t byte = 209;
    bytes.append(reinterpret_cast<const char*>(&id), 4).append(reinterpret_cast<const char*>(wide), 12);
    bytes.append(reinterpret_cast<const char*>(&byte), 1);
    std::uint32_t stored = 0;
    file.read("/commit/crc32c", 2, std::as_writable_bytes(std::span(&stored, 1)));
    EXPECT_EQ(stored, crc32c_plain(0, std::as_bytes(std::span(bytes))));
  }
}

TEST_F(ResultsFileTest, ResumeKeepsWhatIsCommittedAndGivesTheSameBytes) {
  {
    ResultsFile file = create();
    fill_pending(file);
    file.complete(world_);
  }
  const std::string whole = is_root() ? sha256_hex(bytes_of(path_)) : "";
  if (is_root()) fs::remove(path_);
  world_.barrier();
  {
    ResultsFile file = create();
    if (is_root()) {
      // Unit 0 is computed but not committed: it is pending again. Unit 2 is committed.
      fill(file, file.unit(0));
      fill(file, file.unit(2));
      const Unit units[] = {file.unit(2)};
      file.commit(units);
    }
    world_.barrier();
  }
  ResultsFile file = ResultsFile::resume(world_, path_, kIdentity);
  EXPECT_EQ(list_of(file.pending_units()), (std::vector<std::uint64_t>{0, 1}));
  fill_pending(file);
  file.complete(world_);
  if (is_root()) {
    EXPECT_EQ(sha256_hex(bytes_of(path_)), whole);
  }
}

TEST_F(ResultsFileTest, NothingToDoIsAFileToo) {
  ResultsSpec spec = small_spec();
  for (ColumnSpec& column : spec.columns) column.num_rows = column.path == "/samples/offset" ? 1 : 0;
  spec.num_units = 0;
  spec.attributes = kIdentity;
  {
    ResultsFile file = ResultsFile::create(world_, path_, spec);
    if (is_root()) {
      put<std::uint64_t>(file, "/samples/offset", 0, {0});
      put<std::uint64_t>(file, "/commit/unit_begin", 0, {0});
    }
    file.freeze();
  }
  ResultsFile file = ResultsFile::resume(world_, path_, kIdentity);
  EXPECT_TRUE(file.pending_units().empty());
  file.complete(world_);
  EXPECT_EQ(ResultsFile::state_on_disk(path_), ResultsFile::State::kComplete);
}

TEST_F(ResultsFileTest, AHoleIsNeverComplete) {
  ResultsFile file = create();
  expect_refusal(ExitCode::kInternal, "unit 0 is not committed",
                 [&](const Communicator& alone) { file.complete(alone); });
  EXPECT_EQ(ResultsFile::state_on_disk(path_), ResultsFile::State::kPartial);
}

TEST_F(ResultsFileTest, AStaleCreatingFileIsThrownAway) {
  if (is_root()) std::ofstream(path_ + ".creating") << "of a run that died";
  world_.barrier();
  EXPECT_EQ(ResultsFile::state_on_disk(path_), ResultsFile::State::kAbsent);
  const ResultsFile file = create();
  EXPECT_EQ(file.num_units(), 3u);
}

TEST_F(ResultsFileTest, ModeIs0640AsFarAsTheUmaskAllows) {
  const mode_t before = ::umask(0077);
  {
    const ResultsFile file = create();
  }
  ::umask(before);
  struct stat status{};
  ASSERT_EQ(::stat((path_ + ".partial").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  world_.barrier();
  if (is_root()) fs::remove(path_ + ".partial");
  world_.barrier();
  const mode_t second = ::umask(0);
  {
    const ResultsFile file = create();
  }
  ::umask(second);
  ASSERT_EQ(::stat((path_ + ".partial").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

// The kernel tells how a file was opened, so this holds for root, too, whom no mode keeps from writing.
TEST_F(ResultsFileTest, UnitsAreCountedWithoutTheRightToWrite) {
  {
    const ResultsFile file = create();
  }
  world_.barrier();  // all ranks have closed what they opened for writing
  if (is_root()) {
    const std::string path = path_ + ".partial";
    const FileDescriptor watch(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    ASSERT_GE(::inotify_add_watch(watch.number(), path.c_str(), IN_CLOSE_WRITE | IN_CLOSE_NOWRITE), 0);
    const UnitCounts counts = ResultsFile::unit_counts(path);
    EXPECT_EQ(counts.units, 3u);
    EXPECT_EQ(counts.done, 0u);
    inotify_event event{};
    bool is_read = false;
    while (::read(watch.number(), &event, sizeof event) == static_cast<ssize_t>(sizeof event)) {
      EXPECT_EQ(event.mask & IN_CLOSE_WRITE, 0u) << "it was opened for writing";
      is_read = true;
    }
    EXPECT_TRUE(is_read);
  }
  world_.barrier();
}

TEST_F(ResultsFileTest, PreallocatedBlocksAreThereAtOnce) {
  ResultsSpec spec = small_spec();
  for (ColumnSpec& column : spec.columns) {
    if (column.extent == Extent::kRows) column.num_rows = 1 << 20;
  }
  const auto blocks = [&] {
    struct stat status{};
    EXPECT_EQ(::stat((path_ + ".creating").c_str(), &status), 0);
    world_.barrier();
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  };
  {
    const ResultsFile sparse = ResultsFile::create(world_, path_, spec);
    EXPECT_LT(blocks(), 1u << 20);
  }
  world_.barrier();
  spec.preallocate = true;
  {
    const ResultsFile full = ResultsFile::create(world_, path_, spec);
    EXPECT_GT(blocks(), 17u << 20);
  }
}

TEST_F(ResultsFileTest, WhatDoesNotFitTheDiskIsRefusedBeforeAnythingIsMade) {
  ResultsSpec spec = small_spec();
  spec.columns[3].num_rows = 1ull << 50;
  expect_refusal(ExitCode::kInputOutput, "are free",
                 [&](const Communicator& alone) { ResultsFile::create(alone, path_, spec); });
  EXPECT_FALSE(fs::exists(path_ + ".creating"));
  world_.barrier();
  spec.columns[3].num_rows = ~0ull / 2;
  expect_refusal(ExitCode::kData, "does not fit 64 bits",
                 [&](const Communicator& alone) { ResultsFile::create(alone, path_, spec); });
}

TEST_F(ResultsFileTest, ALongExperimentHasRoom) {
  for (const std::size_t length :
       {std::size_t{64'000}, std::size_t{64'001}, std::size_t{70'000}, std::size_t{3} << 20}) {
    ResultsSpec spec = small_spec();
    const AttributeValue text = std::string(length, 'x');
    spec.attributes.emplace_back("experiment", text);
    create(spec);
    Attributes expected = kIdentity;
    expected.emplace_back("experiment", text);
    EXPECT_EQ(ResultsFile::resume(world_, path_, expected).pending_units().size(), 3u) << length;
    world_.barrier();
    if (is_root()) fs::remove(path_ + ".partial");
    world_.barrier();
  }
  // Every other attribute is of this program's making.
  ResultsSpec spec = small_spec();
  spec.attributes.emplace_back("verdicts", std::string(70'000, 'x'));
  expect_refusal(ExitCode::kConfig, "attribute verdicts has 70000 bytes",
                 [&](const Communicator& alone) { ResultsFile::create(alone, path_, spec); });
}

TEST_F(ResultsFileTest, AnErrorWhileCreatingLeavesNothing) {
  ResultsSpec spec = small_spec();
  spec.attributes.emplace_back("verdicts", std::string(70'000, 'x'));  // fails in the middle of the layout
  expect_refusal(ExitCode::kConfig, "verdicts",
                 [&](const Communicator& alone) { ResultsFile::create(alone, path_, spec); });
  EXPECT_FALSE(fs::exists(path_ + ".creating"));
  world_.barrier();
  // Between create() and freeze(), on whichever rank: the one that leaves takes the name along.
  for (int leaver = 0; leaver < world_.size(); ++leaver) {
    {
      ResultsFile file = ResultsFile::create(world_, path_, small_spec());
      world_.barrier();
      if (world_.rank() == leaver) {
        EXPECT_TRUE(fs::exists(path_ + ".creating"));
        const ResultsFile gone = std::move(file);
      }
      world_.barrier();
      EXPECT_FALSE(fs::exists(path_ + ".creating")) << "rank " << leaver;
    }
    world_.barrier();
  }
}

// Result of locking another open file exclusively: 0 = locked, else errno.
int error_of_exclusive_lock(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR);
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const int error = ::fcntl(descriptor, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
  ::close(descriptor);
  return error;
}

TEST_F(ResultsFileTest, EveryRankHoldsASharedLockWhileItMayWrite) {
  // One rank after the other leaves: the lock stays until the last one has left.
  auto file = std::make_unique<ResultsFile>(create());
  for (int leaver = 0; leaver <= world_.size(); ++leaver) {
    const int expected = leaver == world_.size() ? 0 : EAGAIN;
    if (is_root()) {
      EXPECT_EQ(error_of_exclusive_lock(path_ + ".partial"), expected) << leaver << " ranks have left";
    }
    world_.barrier();
    if (world_.rank() == leaver) {
      file->reopen();  // keeps it
      file.reset();
    }
    world_.barrier();
  }
  file = std::make_unique<ResultsFile>(ResultsFile::resume(world_, path_, kIdentity));
  world_.barrier();
  if (is_root()) {
    EXPECT_EQ(error_of_exclusive_lock(path_ + ".partial"), EAGAIN) << "after a restart";
  }
  world_.barrier();
}

}  // namespace results_file_test
}  // namespace magister
