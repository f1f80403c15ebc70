// pread, pwrite, fdatasync, fsync, rename, each checked.
#include "io/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"

namespace magister {
namespace {

[[noreturn]] void fail_io(const std::string& path, const std::string& doing, int error) {
  std::string room;
  struct statvfs space {};
  if ((error == ENOSPC || error == EDQUOT) && statvfs(std::filesystem::path(path).parent_path().c_str(), &space) == 0) {
    room = fmt::format(", {} bytes are free", static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize);
  }
  fail(ExitCode::kInputOutput, "{}: {} failed: {}{} (committed units are safe); {} and run the same command again",
       printable(path), doing, std::strerror(error), room,
       error == ENOSPC || error == EDQUOT ? "free space" : "check the disk");
}

}  // namespace

PosixFile::PosixFile(const std::string& path, Access access) : path_(path) {
  // A link may be followed to read, never to write.
  const int mode = access == Access::kRead ? O_RDONLY : O_RDWR | O_NOFOLLOW;
  descriptor_ = ::open(path.c_str(), mode | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail_io(path, "opening", errno);
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(std::exchange(descriptor_, -1));
    fail(ExitCode::kInputOutput, "{}: is no regular file (results can only stand in one); move it away", printable(path));
  }
}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void PosixFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const bool pretend_full = fail_point("results.write.data");
    const ssize_t n = pretend_full ? -1 : ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (pretend_full) errno = ENOSPC;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_io(path_, fmt::format("writing {} bytes at {}", bytes.size(), offset), n == 0 ? EIO : errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void PosixFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(path_, fmt::format("reading {} bytes at {}", bytes.size(), offset), errno);
    MAGISTER_CHECK(n > 0, ExitCode::kData, "{}: ends before byte {} (it is cut short); put it aside with --fresh",
                   printable(path_), offset + bytes.size());
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void PosixFile::sync_data() {
  if (::fdatasync(descriptor_) != 0) fail_io(path_, "fdatasync", errno);
}

void PosixFile::sync() {
  if (::fsync(descriptor_) != 0) fail_io(path_, "fsync", errno);
}

void sync_folder_of(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_io(folder, "opening the folder", errno);
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // Some network file systems do not know fsync of a folder: the rename is then as durable as they make it.
  if (result != 0 && error != EINVAL && error != ENOTSUP) fail_io(folder, "fsync of the folder", error);
}

void rename_durably(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_io(from, "renaming to " + to, errno);
  sync_folder_of(to);
}

}  // namespace magister
