// WholeFile: a file that stands under its name whole or not at all, for what is small enough to be written again each time:
// summaries, measured figures, exports. Written beside its name as <path>.creating, which is made again and never through a
// link, then fsync, rename, fsync of the folder. A full disk is an error and leaves what stood there before.
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
  // Removes a regular <path>.creating, which a killed run left. Throws Error(kInputOutput).
  WholeFile(const std::string& path, Existing existing);
  ~WholeFile();  // without keep(): nothing stays behind
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void write(std::string_view bytes);
  void keep();

 private:
  void refuse_existing() const;

  std::string path_, creating_;
  Existing existing_;
  std::unique_ptr<PosixFile> file_;  // null: kept, or never made
  std::uint64_t position_ = 0;
};

// The three steps at once. Throws Error(kInputOutput).
void write_whole_file(const std::string& path, std::string_view text);

// The bytes of a file that is read at once, such as a configuration. Throws "<path>: has more than N bytes (<why>)", Error(kData), and
// "<path>: cannot be read (<why>)", Error(kInputOutput). Local.
std::string read_whole_file(const std::filesystem::path& path, std::uint64_t most_bytes, std::string_view why);

// The folder and those above it, durably: each new name is synced into the folder that holds it, so that results inside
// cannot be lost with their folder. Throws Error(kInputOutput).
void make_folders(const std::string& folder);

// fsync of the folder that holds `path`, so that a rename in it survives a power loss. Throws Error(kInputOutput).
void sync_folder_of(const std::string& path);

}  // namespace magister
