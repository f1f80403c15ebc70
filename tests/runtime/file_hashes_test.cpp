// Hashes of files by several threads and ranks, against SHA-256 over their bytes in memory and the lines of sha256sum.
#include "runtime/file_hashes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/parallel/communicator.h"
#include "magister/runtime/model_hash.h"

namespace magister {
namespace file_hashes_test {

namespace fs = std::filesystem;

constexpr std::size_t kMiB = 1 << 20;

// A folder of this rank alone, gone with the object.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("magister_file_hashes_{}", ::getpid())) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  fs::path path_;
};

std::string some_bytes(std::size_t count, unsigned seed) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

// Around the borders of the blocks that one thread reads and that are read ahead.
std::vector<std::string> files_of_all_sizes() {
  std::vector<std::string> files;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kMiB - 1, kMiB, kMiB + 1, 4 * kMiB - 1, 4 * kMiB,
                                 4 * kMiB + 1, 8 * kMiB, 21 * kMiB + 5})
    files.push_back(some_bytes(size, static_cast<unsigned>(size)));
  return files;
}

ExitCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::kDone;
}

TEST(FileHashes, AreThoseOfTheBytesForAnyNumberOfThreads) {
  const Folder folder;
  std::vector<std::string> paths, expected;
  for (const std::string& bytes : files_of_all_sizes()) {
    paths.push_back(folder.write(fmt::format("{:02}.bin", paths.size()), bytes));
    expected.push_back(sha256_hex(bytes));
  }
  for (const int threads : {1, 2, 3, 10, 20, 60}) EXPECT_EQ(hash_files(paths, threads, {}), expected);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    for (const int threads : {1, 2, 5}) EXPECT_EQ(hash_files({paths[i]}, threads, {}).front(), expected[i]);
    EXPECT_EQ(file_sha256(paths[i]), expected[i]);
  }
  EXPECT_TRUE(hash_files({}, 4, {}).empty());
}

// The same digest on any number of ranks, whoever hashes what.
TEST(FileHashes, OfSeveralFilesAreTheLinesOfSha256sum) {
  const Communicator world = Communicator::world();
  const Folder folder;
  std::vector<std::string> paths;
  std::string lines;
  for (const std::string& bytes : files_of_all_sizes()) {
    const std::string name = fmt::format("{:02}.bin", paths.size());
    paths.insert(paths.begin(), folder.write(name, bytes));
    lines += sha256_hex(bytes) + "  " + name + "\n";
  }
  EXPECT_EQ(files_sha256(world, paths), sha256_hex(lines));
  EXPECT_EQ(files_sha256(Communicator(), paths), sha256_hex(lines));
  EXPECT_EQ(files_sha256(world, {paths.front()}), sha256_hex(lines.substr(lines.rfind('\n', lines.size() - 2) + 1)));
}

TEST(FileHashes, RefuseWhatCannotBeRead) {
  const Folder folder;
  const std::string good = folder.write("good", some_bytes(9 * kMiB, 1));
  fs::create_directory(folder.path("folder"));
  for (const int threads : {1, 2, 4, 8}) {
    EXPECT_EQ(code_of([&] { hash_files({good, folder.path("absent")}, threads, {}); }), ExitCode::kInputOutput);
    EXPECT_EQ(code_of([&] { hash_files({folder.path("folder"), good}, threads, {}); }), ExitCode::kInputOutput);
    EXPECT_EQ(code_of([&] { hash_files({folder.path("folder")}, threads, {}); }), ExitCode::kInputOutput);
  }
}

// Shorter, longer, or rewritten in place: no hash names such a file.
TEST(FileHashes, RefuseAFileThatChangesWhileItIsRead) {
  const Folder folder;
  const std::string path = folder.write("weights", some_bytes(40 * kMiB, 2));
  for (const int threads : {1, 3}) {
    for (const std::uintmax_t size : {35 * kMiB, 41 * kMiB}) {
      fs::resize_file(path, 40 * kMiB);
      bool changed = false;
      const auto change = [&] {
        if (!std::exchange(changed, true)) fs::resize_file(path, size);
        return false;
      };
      EXPECT_EQ(code_of([&] { hash_files({path}, threads, change); }), ExitCode::kInputOutput)
          << threads << " " << size;
    }
    fs::resize_file(path, 40 * kMiB);
    const auto touch = [&] {
      fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(1));
      return false;
    };
    EXPECT_EQ(code_of([&] { hash_files({path}, threads, touch); }), ExitCode::kInputOutput);
  }
}

TEST(FileHashes, StopWithinAFile) {
  const Folder folder;
  std::vector<std::string> paths;
  for (const char* name : {"a", "b", "c"}) paths.push_back(folder.write(name, some_bytes(32 * kMiB, 3)));
  for (const int threads : {1, 2, 3, 9}) {
    int asked = 0;
    hash_files(paths, threads, [&] { return ++asked >= 3; });
    EXPECT_GE(asked, 3);
    EXPECT_LE(asked, 3 + 1) << "goes on after the sign";
  }
}

// Hashes requested late equal those requested at once; hashing without a request ends.
TEST(FileHashes, BeginBeforeTheyAreAskedFor) {
  const Communicator world = Communicator::world();
  const Folder folder;
  std::vector<std::string> paths, expected;
  for (const char* name : {"a", "b", "c", "d"}) {
    const std::string bytes = some_bytes(5 * kMiB, static_cast<unsigned>(name[0]));
    paths.push_back(folder.write(name, bytes));
    expected.push_back(sha256_hex(bytes) + "  " + name + "\n");
  }
  FilesHashing begun(world, paths);
  EXPECT_EQ(begun.lines(world, {}), expected);
  EXPECT_EQ(begun.lines(world, {}), expected);
  {
    const FilesHashing unasked(world, paths);
  }
  FilesHashing stopped(world, paths);
  EXPECT_EQ(stopped.lines(world, [] { return true; }).size(), paths.size());
  FilesHashing fails(Communicator(), {paths.front(), folder.path("absent")});
  EXPECT_EQ(code_of([&] { fails.lines(Communicator(), {}); }), ExitCode::kInputOutput);
}

TEST(FileHashes, AreDividedByBytes) {
  EXPECT_EQ(divide_by_bytes({10, 40, 30, 20}, {0, 1}), (std::vector<int>{0, 0, 1, 1}));
  // Ranks 0 and 1 are of one host: the other host's first rank comes before this one's second.
  EXPECT_EQ(divide_by_bytes({5, 5}, {0, 2, 1, 3}), (std::vector<int>{0, 2}));
  EXPECT_EQ(divide_by_bytes({0, 0, 0}, {0, 1, 2}), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(divide_by_bytes({}, {0}).empty());
}

}  // namespace file_hashes_test
}  // namespace magister
