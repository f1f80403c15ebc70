// Folders and free space where a task writes: what cannot be read is a difference or an error, never an exception of
// the library.
#include "magister/run/results_on_disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "io/scratch_folder.h"
#include "magister/core/error.h"

namespace magister {
namespace results_on_disk_test {

namespace fs = std::filesystem;

// While it exists, the process can open only `count` more files.
class FewFiles {
 public:
  explicit FewFiles(rlim_t count) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next) + count;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;

 private:
  rlimit before_{};
};

TEST(SameFiles, AreSoughtInAllFolders) {
  const test::ScratchFolder scratch;
  for (const char* folder : {"a", "b", "c"}) {
    fs::create_directories(scratch / (std::string(folder) + "/below/deep"));
    scratch.write(std::string(folder) + "/below/deep/x", folder[0] == 'c' ? "2" : "1");
  }
  EXPECT_TRUE(has_same_files(scratch / "a", scratch / "b"));
  EXPECT_FALSE(has_same_files(scratch / "a", scratch / "c"));
  EXPECT_FALSE(has_same_files(scratch / "a", scratch / "missing"));
  const FewFiles few(2);  // the folder and the one below, not the deepest
  EXPECT_FALSE(has_same_files(scratch / "a", scratch / "b")) << "a folder that cannot be read is no equal";
}

// The free bytes are those of the nearest folder that exists. The fourth question gets no answer.
TEST(FreeBytes, AreReadOrAnError) {
  ::setenv("MAGISTER_FAIL_POINT", "results.free_space@4:enospc", 1);
  const test::ScratchFolder scratch;
  const fs::space_info space = fs::space(scratch.path());
  const std::string too_long = scratch / (std::string(300, 'x') + "/below/x.h5");
  for (const std::string& path : {scratch / "x.h5", scratch / "missing/below/x.h5", too_long}) {
    const std::uint64_t free = free_bytes_for(path);
    EXPECT_GT(free, space.available / 2) << path;
    EXPECT_LE(free, space.capacity) << path;
  }
  try {
    free_bytes_for(scratch / "x.h5");
    ADD_FAILURE() << "a number was returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInputOutput);
    EXPECT_NE(std::string(error.what()).find("the free space cannot be read: Input/output error"), std::string::npos)
        << error.what();
  }
  ::unsetenv("MAGISTER_FAIL_POINT");
}

}  // namespace results_on_disk_test
}  // namespace magister
