// pread, pwrite, fdatasync, fsync, fallocate, rename and statvfs; each result is checked.
#include "io/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

int open_flags(PosixFile::Access access) {
  // O_NONBLOCK: opening a FIFO must not wait for its other end.
  switch (access) {
    case PosixFile::Access::kRead:
      return O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    case PosixFile::Access::kReadWrite:
      return O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    case PosixFile::Access::kCreate:
      return O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  }
  return O_RDONLY;
}

}  // namespace

void fail_io(const std::string& path, const std::string& doing, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  const std::string room = full ? fmt::format(", {} bytes are free", free_bytes_at(path)) : "";
  fail(ExitCode::kInputOutput, "{}: {} failed: {}{} (committed units are safe); {} and run the same command again",
       printable(path), doing, std::strerror(error), room,
       full             ? "free space"
       : error == EFBIG ? "raise the limit on the size of files (ulimit -f)"
                        : "check the disk");
}

PosixFile::PosixFile(const std::string& path, Access access) : path_(path) {
  do {
    descriptor_.reset(::open(path.c_str(), open_flags(access), 0640));
  } while (!descriptor_.is_open() && errno == EINTR);
  const int error = errno;
  MAGISTER_CHECK(descriptor_.is_open() || access == Access::kRead || error != ELOOP, ExitCode::kInputOutput,
                 "{}: is a symbolic link (results are written only where their name says); move it away",
                 printable(path));
  // With O_EXCL a symbolic link gives EEXIST, too.
  MAGISTER_CHECK(descriptor_.is_open() || access != Access::kCreate || error != EEXIST, ExitCode::kInputOutput,
                 "{}: the path exists, perhaps as a symbolic link (the file must be new, never reached through a "
                 "link); move it away",
                 printable(path));
  MAGISTER_CHECK(descriptor_.is_open(), ExitCode::kInputOutput,
                 "{}: cannot be {}: {} (nothing can be done with it); check the "
                 "path and its permissions",
                 printable(path), access == Access::kCreate ? "created" : "opened", std::strerror(error));
  struct stat status{};
  if (::fstat(descriptor_.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    descriptor_.reset();
    MAGISTER_CHECK(!S_ISDIR(status.st_mode) || access != Access::kRead, ExitCode::kInputOutput,
                   "{}: is a folder (a file is read here); name the one in it that is meant", printable(path));
    fail(ExitCode::kInputOutput, "{}: is not a regular file (only such a file can be read or written); {}",
         printable(path), access == Access::kRead ? "name another" : "move it away");
  }
}

// Linux's NFS client extends a write to the whole page if its cache believes to hold that page's current content
// (nfs_can_extend_write). Flags and rows that another host wrote into the page meanwhile would be overwritten with old
// content. It does not do so for a file that is locked on this host, other than exclusively as a whole, or opened with
// O_DSYNC. A shared lock of the whole file costs one request per run, and rows are still sent in large pieces; with
// O_DSYNC every write waits for the server. So O_DSYNC is used only where a file system refuses the lock. The lock
// belongs to the open file (F_OFD), because closing another descriptor of the file, as HDF5 does, must not drop it.
// Local file systems lose nothing.
void PosixFile::protect_neighbours() {
  protected_ = true;
  struct flock whole{};
  whole.l_type = F_RDLCK;
  whole.l_whence = SEEK_SET;
  const bool pretend_refused = fail_point("results.range_lock");
  int result = -1;
  do {
    result = pretend_refused ? -1 : ::fcntl(descriptor_.number(), F_OFD_SETLK, &whole);
  } while (result != 0 && !pretend_refused && errno == EINTR);
  if (result == 0) return;
  const int error = pretend_refused ? ENOLCK : errno;
  MAGISTER_CHECK(error != EAGAIN && error != EACCES, ExitCode::kInputOutput,
                 "{}: another program holds an exclusive lock on it "
                 "(it could change what is written here); end that program",
                 printable(path_));
  static std::atomic<bool> reported{false};
  if (!reported.exchange(true)) {
    log_warning(
        "{}: this file system refuses range locks: {} (over NFS, hosts could overwrite each other's bytes); every "
        "write waits for the disk instead (O_DSYNC), which is slower",
        printable(path_), std::strerror(error));
  }
  const int synchronous = ::open(path_.c_str(), open_flags(Access::kReadWrite) | O_DSYNC);
  if (synchronous < 0) fail_io(path_, "opening with O_DSYNC", errno);
  descriptor_.reset(synchronous);
}

void PosixFile::reopen() {
  const bool was_protected = protected_;
  *this = PosixFile(path_);
  if (was_protected) protect_neighbours();
}

std::uint64_t PosixFile::num_bytes() const {
  struct stat status{};
  if (::fstat(descriptor_.number(), &status) != 0) fail_io(path_, "asking for the size", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void PosixFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const bool pretend_full = fail_point("results.write.data");
    const ssize_t n =
        pretend_full ? -1 : ::pwrite(descriptor_.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (pretend_full) errno = ENOSPC;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_io(path_, fmt::format("writing {} bytes at {}", bytes.size(), offset), n == 0 ? EIO : errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void PosixFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(descriptor_.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(path_, fmt::format("reading {} bytes at {}", bytes.size(), offset), errno);
    MAGISTER_CHECK(n > 0, ExitCode::kData, "{}: ends before byte {} (it is cut short); put it aside with --fresh",
                   printable(path_), offset + bytes.size());
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void PosixFile::preallocate() {
  int result = 0;
  do {
    result = ::fallocate(descriptor_.number(), 0, 0, static_cast<off_t>(num_bytes()));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return;
  // fallocate instead of posix_fallocate: where the file system has no support, the latter writes every block, which is
  // slow.
  if (errno != EOPNOTSUPP && errno != ENOSYS) fail_io(path_, fmt::format("reserving {} bytes", num_bytes()), errno);
  log_warning("{}: this file system cannot reserve space; a full disk would show only when rows are written", path_);
}

void PosixFile::sync_data() {
  while (::fdatasync(descriptor_.number()) != 0) {
    if (errno != EINTR) fail_io(path_, "fdatasync", errno);
  }
}

void PosixFile::sync() {
  while (::fsync(descriptor_.number()) != 0) {
    if (errno != EINTR) fail_io(path_, "fsync", errno);
  }
}

void sync_folder_of(const std::string& path) {
  const std::string folder = folder_of(path);
  const FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool is_open = descriptor.is_open();
  if (!is_open && errno == EACCES) return;  // a user who may create files in a folder may lack the right to read it
  if (!is_open) fail_io(folder, "opening the folder", errno);
  const int result = ::fsync(descriptor.number());
  const int error = errno;
  // Some network file systems have no fsync for folders: the rename is then as durable as they make it.
  if (result != 0 && error != EINVAL && error != ENOTSUP) fail_io(folder, "fsync of the folder", error);
}

void rename_durably(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_io(from, "renaming to " + printable(to), errno);
  sync_folder_of(to);
}

namespace {

// Returns errno, or 0 with the number.
int read_free_bytes(const std::string& path, std::uint64_t& bytes) {
  struct statvfs space{};
  if (statvfs(folder_of(path).c_str(), &space) != 0) return errno;
  bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  return 0;
}

}  // namespace

std::uint64_t free_bytes_at(const std::string& path) {
  std::uint64_t bytes = 0;
  read_free_bytes(path, bytes);
  return bytes;
}

void require_free_bytes(const std::string& path, std::uint64_t bytes) {
  std::uint64_t free = 0;
  if (const int error = read_free_bytes(path, free); error != 0) fail_io(path, "reading the free space", error);
  MAGISTER_CHECK(bytes <= free, ExitCode::kInputOutput,
                 "{}: needs {} bytes, {} are free (the work would stop half-way); free space or write elsewhere",
                 printable(path), bytes, free);
}

}  // namespace magister
