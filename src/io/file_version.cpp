// See file_version.h.
#include "magister/io/file_version.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "magister/core/error.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

// Others that stand in a model's folder (a log, a picture) may change as they like.
bool may_belong_to_model(const fs::path& path) {
  constexpr const char* kExtensions[] = {".safetensors", ".gguf", ".json", ".jinja", ".model", ".tiktoken"};
  const std::string extension = path.extension().string();
  return std::any_of(std::begin(kExtensions), std::end(kExtensions), [&](const char* one) { return extension == one; });
}

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

std::optional<FileVersion> version_of(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return std::nullopt;
  return FileVersion{static_cast<std::uint64_t>(status.st_size), nanoseconds(status.st_mtim)};
}

}  // namespace

std::optional<FileVersion> file_version(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 ? version_of(status) : std::nullopt;
}

std::optional<FileVersion> file_version(int descriptor) {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 ? version_of(status) : std::nullopt;
}

std::optional<FileVersions::Known> FileVersions::known(const std::string& path) {
  struct stat status{};
  const auto version = ::stat(path.c_str(), &status) == 0 ? version_of(status) : std::nullopt;
  if (!version) return std::nullopt;
  return Known{*version, status.st_dev, status.st_ino, nanoseconds(status.st_ctim)};
}

void FileVersions::add(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (const auto file = known(path)) files_.emplace(path, *file);
    return;
  }
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (!may_belong_to_model(at->path())) continue;
    if (const auto file = known(at->path().string())) files_.emplace(at->path().string(), *file);
  }
}

void FileVersions::check_unchanged() const {
  for (const auto& [path, file] : files_) {
    const std::optional<Known> now = known(path);
    if (now == file) continue;
    fail(ExitCode::kInputOutput,
         "{}: {} since this job opened it (what was read then and what stands there now would count as one model); "
         "leave a model's files alone during a run, and run the same command again",
         printable(path, 4096), now ? "was changed" : "is gone");
  }
}

}  // namespace magister
