// FileVersion: what tells whether a file is still the one that was read, without reading it again. A job opens its models at the start and
// hashes one when its task begins, perhaps a day later: what is hashed must be what was opened.
// Source: stat(2); rename(2) puts another file under a name, and who has opened the old one keeps it.
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

// Of an open file; nothing where it is no regular one.
std::optional<FileVersion> file_version(int descriptor);

// The versions of a model's files at one time. One that was copied over another with its time (cp -p, rsync -t) is told by when anything of it was
// changed last; not by device and inode, which some file systems number anew.
class FileVersions {
 public:
  // As it stands now; nothing where no regular file is. One that is known already keeps its version.
  void add(const std::string& path);
  // Throws Error(kInputOutput) for the first that is not as it was: changed, replaced or gone. Local.
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
