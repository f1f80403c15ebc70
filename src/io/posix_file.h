// An open file, and whole reads and writes at offsets whose errors name path, place and reason.
// Short writes and interrupted calls go on; a full disk says how much room is left. Source: POSIX.1-2017 pread, pwrite.
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
    kReadWrite,  // refuses them: what is written stands where its name says
    kCreate,     // must not exist; readable by owner and group as far as the umask allows
  };

  PosixFile() = default;
  // Refuses everything that is not a regular file. Throws Error(kInputOutput).
  explicit PosixFile(const std::string& path, Access access = Access::kReadWrite);

  const std::string& path() const { return path_; }
  void set_path(std::string path) { path_ = std::move(path); }  // after a rename
  // For a file that ranks on several hosts write at the same time, next to each other: no byte but those handed to write_at()
  // reaches the file. Call once, after opening. See the reasons in posix_file.cpp.
  void protect_neighbours();
  // Closes and opens again under the same path, protected as before: what other hosts have synced is seen from here on (NFS
  // promises it to who opens after another closed or synced, not to who had the file open all the time).
  void reopen();
  std::uint64_t num_bytes() const;
  // Any thread.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  // Blocks for every byte of the file now, so that a full disk shows here and not in the middle of the work.
  void preallocate();
  void sync_data();  // fdatasync
  void sync();       // fsync

 private:
  std::string path_;
  FileDescriptor descriptor_;
  bool protected_ = false;
};

// Error(kInputOutput) that names path, what was being done and errno's text; of a full disk also what is free.
[[noreturn]] void fail_io(const std::string& path, const std::string& doing, int error);

// rename + sync_folder_of. Throws Error(kInputOutput).
void rename_durably(const std::string& from, const std::string& to);

// Free bytes for an unprivileged user on the file system of `path`, which need not exist yet, only its folder.
std::uint64_t free_bytes_beside(const std::string& path);
// Throws Error(kInputOutput) with both numbers when `bytes` do not fit beside `path`.
void require_free_bytes(const std::string& path, std::uint64_t bytes);

}  // namespace magister
