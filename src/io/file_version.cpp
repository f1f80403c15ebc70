#include "magister/io/file_version.h"

#include <sys/stat.h>

#include "magister/core/error.h"

namespace magister {
namespace {

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

std::optional<FileVersion> version_of(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return std::nullopt;
  return FileVersion{static_cast<std::uint64_t>(status.st_size), nanoseconds(status.st_mtim)};
}

}  // namespace

std::optional<FileVersion> file_version(int descriptor) {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 ? version_of(status) : std::nullopt;
}

std::optional<FileVersions::Known> FileVersions::known(const std::string& path) {
  struct stat status{};
  const auto version = ::stat(path.c_str(), &status) == 0 ? version_of(status) : std::nullopt;
  if (!version) return std::nullopt;
  return Known{*version, nanoseconds(status.st_ctim)};
}

void FileVersions::add(const std::string& path) {
  if (const auto file = known(path)) files_.emplace(path, *file);
}

void FileVersions::check_unchanged() const {
  for (const auto& [path, file] : files_) {
    const std::optional<Known> now = known(path);
    if (now == file) continue;
    fail(ExitCode::kInputOutput,
         "{}: {} since this job opened it (the old and the new content would count as one model); leave a model's "
         "files alone during a run, and run the same command again",
         printable(path, 4096), now ? "was changed" : "is gone");
  }
}

}  // namespace magister
