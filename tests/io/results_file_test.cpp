// ResultsFile on 1, 2 and 4 ranks: states on disk, commits, resume, and every refusal by name with its exit code.
#include "magister/io/results/results_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "io/results/layout.h"
#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/core/sha256.h"
#include "magister/io/crc32c.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Extent = ColumnSpec::Extent;
using Attributes = std::vector<std::pair<std::string, AttributeValue>>;

const Attributes kIdentity = {{"config_sha256", "c0ffee"}, {"slice_end", std::uint64_t{6}}};

// 6 samples of 3, 0, 2, 4, 0, 1 tokens in 3 units.
ResultsSpec small_spec() {
  ResultsSpec spec;
  spec.columns = {{"/samples/key", ColumnType::kUtf8, 6, 5, "key", "", Extent::kSamples},
                  {"/samples/offset", ColumnType::kU64, 7, 0, "offsets", "", Extent::kFixed},
                  {"/tokens/id", ColumnType::kI32, 10, 0, "ids", "", Extent::kRows},
                  {"/values/wide", ColumnType::kF32, 10, 3, "three a row", "nat", Extent::kRows},
                  {"/values/byte", ColumnType::kU8, 10, 0, "one a row", "", Extent::kRows}};
  spec.num_units = 3;
  spec.attributes = kIdentity;
  spec.attributes.emplace_back("num_samples", std::uint64_t{6});
  spec.attributes.emplace_back("num_tokens", std::uint64_t{10});
  return spec;
}

template <typename T>
void put(ResultsFile& file, const char* column, std::uint64_t row, const std::vector<T>& values) {
  file.write(column, row, std::as_bytes(std::span(values)));
}

std::vector<std::uint64_t> list_of(const UnitSet& units) { return {units.begin(), units.end()}; }

class ResultsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("magister_results_{}", ::getpid());
    std::string name = folder_.string();
    world_.broadcast(name, 0);
    folder_ = name;
    path_ = (folder_ / "x.h5").string();
    if (speaks()) fs::create_directories(folder_);
    world_.barrier();
  }
  void TearDown() override {
    world_.barrier();
    if (speaks()) fs::remove_all(folder_);
    world_.barrier();
  }
  bool speaks() const { return world_.rank() == 0; }

  ResultsFile create(const ResultsSpec& spec = small_spec()) {
    ResultsFile file = ResultsFile::create(world_, path_, spec);
    if (speaks()) {
      put<std::uint64_t>(file, "/samples/offset", 0, {0, 3, 3, 5, 9, 9, 10});
      put<std::uint64_t>(file, "/commit/unit_begin", 0, {0, 2, 4, 6});
      put<std::int32_t>(file, "/tokens/id", 0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
      const std::string keys("a\0\0\0\0bb\0\0\0ccc\0\0dddd\0eeeeef\0\0\0\0", 30);
      file.write("/samples/key", 0, std::as_bytes(std::span(keys)));
    }
    file.freeze();
    return file;
  }
  static void fill(ResultsFile& file, const Unit& unit) {
    std::vector<float> wide;
    std::vector<std::uint8_t> byte;
    for (std::uint64_t row = unit.rows.begin; row < unit.rows.end; ++row) {
      for (int i = 0; i < 3; ++i) wide.push_back(static_cast<float>(row) + 0.25f * static_cast<float>(i));
      byte.push_back(static_cast<std::uint8_t>(200 + row));
    }
    put(file, "/values/wide", unit.rows.begin, wide);
    put(file, "/values/byte", unit.rows.begin, byte);
  }
  void fill_pending(ResultsFile& file) const {
    std::uint64_t turn = 0;
    for (const std::uint64_t index : file.pending_units()) {
      if (turn++ % static_cast<std::uint64_t>(world_.size()) != static_cast<std::uint64_t>(world_.rank())) continue;
      fill(file, file.unit(index));
      file.commit(file.unit(index));
    }
    world_.barrier();
  }
  std::string bytes_of(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // On rank 0, where the work of checking is done; a Communicator alone keeps the others out of it.
  void expect_refusal(ExitCode code, const std::string& words,
                      const std::function<void(const Communicator&)>& call) const {
    if (speaks()) {
      const Communicator alone;
      try {
        call(alone);
        ADD_FAILURE() << "no refusal: " << words;
      } catch (const Error& error) {
        EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
        EXPECT_THAT(error.what(), HasSubstr(words));
      }
    }
    world_.barrier();
  }
  void expect_resume_refused(const std::string& words, ExitCode code = ExitCode::kData) const {
    const std::string before = speaks() ? bytes_of(path_ + ".partial") : "";
    expect_refusal(code, words, [&](const Communicator& alone) { ResultsFile::resume(alone, path_, kIdentity); });
    if (speaks()) EXPECT_EQ(bytes_of(path_ + ".partial"), before) << "it is never overwritten";
  }

  const Communicator world_ = Communicator::world();
  fs::path folder_;
  std::string path_;
};

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
  if (speaks()) {
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
  const std::string whole = speaks() ? sha256_hex(bytes_of(path_)) : "";
  if (speaks()) fs::remove(path_);
  world_.barrier();
  {
    ResultsFile file = create();
    if (speaks()) {
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
  if (speaks()) EXPECT_EQ(sha256_hex(bytes_of(path_)), whole);
}

TEST_F(ResultsFileTest, NothingToDoIsAFileToo) {
  ResultsSpec spec = small_spec();
  for (ColumnSpec& column : spec.columns) column.num_rows = column.path == "/samples/offset" ? 1 : 0;
  spec.num_units = 0;
  spec.attributes = kIdentity;
  {
    ResultsFile file = ResultsFile::create(world_, path_, spec);
    if (speaks()) {
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
  if (speaks()) std::ofstream(path_ + ".creating") << "of a run that died";
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
  if (speaks()) fs::remove(path_ + ".partial");
  world_.barrier();
  const mode_t second = ::umask(0);
  {
    const ResultsFile file = create();
  }
  ::umask(second);
  ASSERT_EQ(::stat((path_ + ".partial").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
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
    if (speaks()) fs::remove(path_ + ".partial");
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

// What a lock of another open file runs into: 0 = nothing, else errno.
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
  // One rank after the other leaves: the lock stands until the last one has.
  auto file = std::make_unique<ResultsFile>(create());
  for (int leaver = 0; leaver <= world_.size(); ++leaver) {
    const int expected = leaver == world_.size() ? 0 : EAGAIN;
    if (speaks()) EXPECT_EQ(error_of_exclusive_lock(path_ + ".partial"), expected) << leaver << " ranks have left";
    world_.barrier();
    if (world_.rank() == leaver) {
      file->reopen();  // keeps it
      file.reset();
    }
    world_.barrier();
  }
  file = std::make_unique<ResultsFile>(ResultsFile::resume(world_, path_, kIdentity));
  world_.barrier();
  if (speaks()) EXPECT_EQ(error_of_exclusive_lock(path_ + ".partial"), EAGAIN) << "after a restart";
  world_.barrier();
}

TEST_F(ResultsFileTest, OtherThingsInThePlaceOfTheFile) {
  for (const char* suffix : {"", ".partial"}) {
    const std::string place = path_ + suffix;
    if (speaks()) fs::create_directory(place);
    world_.barrier();
    expect_refusal(ExitCode::kInputOutput, "is a folder",
                   [&](const Communicator&) { ResultsFile::state_on_disk(path_); });
    if (speaks()) {
      fs::remove(place);
      fs::create_symlink(folder_ / "elsewhere.h5", place);
    }
    world_.barrier();
    expect_refusal(ExitCode::kInputOutput, "symbolic link",
                   [&](const Communicator&) { ResultsFile::state_on_disk(path_); });
    if (speaks()) {
      fs::remove(place);
      ASSERT_EQ(::mkfifo(place.c_str(), 0600), 0);
    }
    world_.barrier();
    expect_refusal(ExitCode::kInputOutput, "no regular file",
                   [&](const Communicator&) { ResultsFile::state_on_disk(path_); });
    if (speaks()) fs::remove(place);
    world_.barrier();
  }
  if (speaks()) fs::create_symlink(folder_ / "elsewhere.h5", path_ + ".creating");
  world_.barrier();
  expect_refusal(ExitCode::kInputOutput, "symbolic link",
                 [&](const Communicator& alone) { ResultsFile::create(alone, path_, small_spec()); });
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere.h5"));
}

TEST_F(ResultsFileTest, CompleteNeverReplacesAFile) {
  ResultsFile file = create();
  fill_pending(file);
  if (speaks()) std::ofstream(path_) << "of somebody else";
  world_.barrier();
  expect_refusal(ExitCode::kInputOutput, "never overwritten", [&](const Communicator& alone) { file.complete(alone); });
  if (speaks()) EXPECT_EQ(bytes_of(path_), "of somebody else");
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
    if (speaks()) {  // where the columns stand, found by their bytes
      const std::string bytes = bytes_of(path_ + ".partial");
      const std::uint64_t offsets[] = {0, 3, 3, 5, 9, 9, 10}, begins[] = {0, 2, 4, 6};
      offsets_at = bytes.find(std::string(reinterpret_cast<const char*>(offsets), sizeof offsets));
      flags_at = bytes.find(std::string(reinterpret_cast<const char*>(begins), sizeof begins)) + sizeof begins;
      layout_at = bytes.find(layout_sha256(read_layout(path_ + ".partial")));
      ASSERT_NE(offsets_at, std::string::npos);
      ASSERT_NE(layout_at, std::string::npos);
    }
  }
  const std::string good = speaks() ? bytes_of(path_ + ".partial") : "";
  const auto with = [&](std::uint64_t at, char value, const std::string& words) {
    if (speaks()) {
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
    if (speaks()) std::ofstream(path_ + ".partial", std::ios::binary) << good.substr(0, length);
    world_.barrier();
    expect_resume_refused(path_ + ".partial");
  }
  if (speaks()) std::ofstream(path_ + ".partial", std::ios::binary) << good;
  world_.barrier();
  EXPECT_EQ(ResultsFile::resume(world_, path_, kIdentity).pending_units().size(), 3u);
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
    // A second run of this host: another open file, so flock tells them apart even in this process.
    expect_refusal(ExitCode::kInputOutput, "another run holds it: process",
                   [&](const Communicator& alone) { const ResultsLock second(alone, path_); });
  }
  world_.barrier();
  EXPECT_FALSE(fs::exists(path_ + ".lock"));
}

TEST_F(ResultsFileTest, LockTakesOverFromTheDead) {
  if (speaks()) {
    std::ofstream(path_ + ".lock") << R"({"host": "elsewhere", "pid": 1, "since": "yesterday"})";
  }
  world_.barrier();
  const ResultsLock lock(world_, path_);  // nobody locks it: the text alone holds nothing
  std::string text;
  std::getline(std::ifstream(path_ + ".lock"), text);
  EXPECT_THAT(text, HasSubstr(host_name()));
}

TEST_F(ResultsFileTest, LockFileWithoutSense) {
  for (const char* text : {"", "{", "[1]", R"({"pid": "x"})", R"({"pid": -1, "launcher": 18446744073709551615})"}) {
    if (!speaks()) continue;
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

}  // namespace
}  // namespace magister
