// A file descriptor with one owner, and whole reads and writes at offsets whose errors name path, place and reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace magister {

class PosixFile {
 public:
  PosixFile() = default;
  // Refuses a symbolic link and everything that is no regular file. Throws Error(kInputOutput).
  enum class Access { kRead, kReadWrite };
  explicit PosixFile(const std::string& path, Access access = Access::kReadWrite);
  ~PosixFile();
  PosixFile(PosixFile&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  PosixFile& operator=(PosixFile&& other) noexcept;

  const std::string& path() const { return path_; }
  void set_path(std::string path) { path_ = std::move(path); }  // after a rename
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  void sync_data();  // fdatasync
  void sync();       // fsync

 private:
  std::string path_;
  int descriptor_ = -1;
};

// fsync of the folder that holds `path`, so that a rename in it survives a power loss.
void sync_folder_of(const std::string& path);
// rename + sync_folder_of. Throws Error(kInputOutput).
void rename_durably(const std::string& from, const std::string& to);

}  // namespace magister
