// An open file. Reads and writes at offsets are complete, and their errors name path, place and reason. Short writes
// and interrupted calls are continued; the message for a full disk says how much space is left. Source: POSIX.1-2017
// pread, pwrite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "magister/core/file_descriptor.h"

namespace magister {

class PosixFile {
 public:
  enum class Access {
    kRead,       // follows symbolic links
    kReadWrite,  // refuses symbolic links, so that data is written where the name says
    kCreate,     // must not exist; readable by owner and group, restricted by the umask
  };

  PosixFile() = default;
  // Refuses everything except a regular file. Throws Error(kInputOutput).
  explicit PosixFile(const std::string& path, Access access = Access::kReadWrite);

  const std::string& path() const { return path_; }
  void set_path(std::string path) { path_ = std::move(path); }  // after a rename
  // For a file that ranks on several hosts write at the same time, next to each other: only the bytes given to
  // write_at() reach the file. Call once, after opening. posix_file.cpp explains the reasons.
  void protect_neighbours();
  // Closes and opens again under the same path, protected as before. Afterwards what other hosts have synced is visible
  // (NFS guarantees that to a process that opens the file after another closed or synced it, not to one that kept it
  // open).
  void reopen();
  std::uint64_t num_bytes() const;
  // Thread-safe.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  // Allocates disk blocks for the whole file now, so that a full disk is an error here and not in the middle of the
  // work.
  void preallocate();
  void sync_data();  // fdatasync
  void sync();       // fsync

 private:
  std::string path_;
  FileDescriptor descriptor_;
  bool protected_ = false;
};

// Error(kInputOutput) that names path, operation and errno's text, and for a full disk the free space.
[[noreturn]] void fail_io(const std::string& path, const std::string& doing, int error);

// rename + sync_folder_of. Throws Error(kInputOutput).
void rename_durably(const std::string& from, const std::string& to);

// Free bytes for an unprivileged user on the file system of `path`, which need not exist yet, only its folder. For
// messages: 0 if they cannot be read.
std::uint64_t free_bytes_at(const std::string& path);
// Throws Error(kInputOutput) with both numbers if the file system of `path` has fewer than `bytes` free, and with
// errno's text if that cannot be read.
void require_free_bytes(const std::string& path, std::uint64_t bytes);

}  // namespace magister
