// Folders and free space where a task writes: what cannot be read is a difference or an error, never an exception of the
// library.
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

}  // namespace results_on_disk_test
}  // namespace magister
