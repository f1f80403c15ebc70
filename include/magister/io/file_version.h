// FileVersion: tells whether a file has changed since it was read, without reading it again. A job opens its models at
// the start and hashes each when its task begins, perhaps a day later; the hashed files must be the opened ones.
// Source: stat(2). rename(2) can put another file under a name; a process that has the old file open keeps it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace magister {

struct FileVersion {
  std::uint64_t bytes = 0;
  std::int64_t modified_nanoseconds = 0;  // since 1970
  bool operator==(const FileVersion&) const = default;
};

// Version of an open file; nullopt if it is not a regular file.
std::optional<FileVersion> file_version(int descriptor);

// The versions of a model's files at one time. A file that was overwritten by a copy with the same modification time
// (cp -p, rsync -t) is detected by its change time (ctime). Device and inode are not compared, because some file
// systems renumber them.
class FileVersions {
 public:
  // Records the file's present version; nothing if there is no regular file. A path that is already recorded keeps its
  // version.
  void add(const std::string& path);
  // Throws Error(kInputOutput) for the first file that was changed, replaced or removed. Local.
  void check_unchanged() const;

 private:
  struct Known {
    FileVersion version;
    std::int64_t changed_nanoseconds;
    bool operator==(const Known&) const = default;
  };
  static std::optional<Known> known(const std::string& path);

  std::map<std::string, Known> files_;  // by path
};

}  // namespace magister
