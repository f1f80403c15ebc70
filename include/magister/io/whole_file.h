// WholeFile: a file that exists completely or not at all, for small files that are rewritten each time: summaries,
// measured figures, exports. It is written as <path>.creating, which is always a new file and never a link, then fsync,
// rename, fsync of the folder. A full disk is an error and leaves the previous file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace magister {

class PosixFile;

class WholeFile {
 public:
  enum class Existing { kReplaced, kRefused };
  // Removes a regular <path>.creating that a killed run left. Throws Error(kInputOutput).
  WholeFile(const std::string& path, Existing existing);
  ~WholeFile();  // without keep(): removes <path>.creating
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void write(std::string_view bytes);
  void keep();

 private:
  void refuse_existing() const;

  std::string path_, creating_;
  Existing existing_;
  std::unique_ptr<PosixFile> file_;  // null after keep()
  std::uint64_t position_ = 0;
};

// Opens, writes and keeps. Throws Error(kInputOutput).
void write_whole_file(const std::string& path, std::string_view text);

// The bytes of a small file, such as a configuration, read at once. Throws "<path>: has N bytes, more than most_bytes
// (<why>)", Error(kData), and "<path>: cannot be read (<why>)", Error(kInputOutput). Local.
std::string read_whole_file(const std::filesystem::path& path, std::uint64_t most_bytes, std::string_view why);

// Creates the folder and its missing parents durably: each new name is synced into its parent folder, so that a power
// loss cannot lose results together with their folder. Throws Error(kInputOutput).
void make_folders(const std::string& folder);

// fsync of the folder that holds `path`, so that a rename in it survives a power loss. Throws Error(kInputOutput).
void sync_folder_of(const std::string& path);

}  // namespace magister
