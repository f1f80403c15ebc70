// The steps of writing a whole file; each can fail on a full disk. After fsync, close() can report no new error.
#include "magister/io/whole_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "io/posix_file.h"
#include "magister/core/error.h"
#include "magister/core/fail_point.h"

namespace magister {
namespace fs = std::filesystem;

namespace {

// Bytes that are not on disk yet, at most. With all of a large file the last sync would take as long as writing it, and
// whoever gives a file up would wait for that.
constexpr std::uint64_t kMostUnsynced = 256 << 20;

}  // namespace

WholeFile::WholeFile(const std::string& path, Existing existing)
    : path_(path), creating_(path + ".creating"), existing_(existing) {
  refuse_existing();
  struct stat status{};
  if (::lstat(creating_.c_str(), &status) == 0 && S_ISREG(status.st_mode)) ::unlink(creating_.c_str());
  file_ = std::make_unique<PosixFile>(creating_, PosixFile::Access::kCreate);
}

WholeFile::~WholeFile() {
  if (file_) ::unlink(creating_.c_str());
}

void WholeFile::refuse_existing() const {
  struct stat status{};
  const bool exists = ::lstat(path_.c_str(), &status) == 0;
  MAGISTER_CHECK(existing_ == Existing::kReplaced || !exists, ExitCode::kInputOutput,
                 "{}: exists (nothing is overwritten); give "
                 "another name or move it away",
                 printable(path_));
  MAGISTER_CHECK(!exists || !S_ISDIR(status.st_mode), ExitCode::kInputOutput,
                 "{}: is a folder (a file of that name is to be "
                 "written); move it away",
                 printable(path_));
}

void WholeFile::write(std::string_view bytes) {
  if (fail_point("whole_file.write")) fail_io(creating_, fmt::format("writing {} bytes", bytes.size()), ENOSPC);
  file_->write_at(position_, std::as_bytes(std::span(bytes)));
  const std::uint64_t synced = position_ / kMostUnsynced;
  position_ += bytes.size();
  if (position_ / kMostUnsynced > synced) file_->sync_data();
}

void WholeFile::keep() {
  file_->sync();
  fail_point("whole_file.synced");
  refuse_existing();
  rename_durably(creating_, path_);
  file_.reset();
}

void write_whole_file(const std::string& path, std::string_view text) {
  WholeFile file(path, WholeFile::Existing::kReplaced);
  file.write(text);
  file.keep();
}

std::string read_whole_file(const fs::path& path, std::uint64_t most_bytes, std::string_view why) {
  const std::string shown = printable(path.string());
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  MAGISTER_CHECK(!error, ExitCode::kInputOutput, "{}: cannot be read: {} ({}); check the path and its permissions",
                 shown, error.message(), why);
  MAGISTER_CHECK(size <= most_bytes, ExitCode::kData,
                 "{}: has {} bytes, more than {} ({}); name another file or fetch it again", shown, size, most_bytes,
                 why);
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  MAGISTER_CHECK(file.is_open() && !file.bad(), ExitCode::kInputOutput,
                 "{}: cannot be read ({}); check the path and its permissions", shown, why);
  return text;
}

void make_folders(const std::string& folder) {
  std::vector<fs::path> missing;
  std::error_code error, ignored;
  for (fs::path at = folder; !at.empty() && !fs::exists(at, ignored); at = at.parent_path()) missing.push_back(at);
  if (!folder.empty()) fs::create_directories(folder, error);
  MAGISTER_CHECK(folder.empty() || fs::is_directory(folder, ignored), ExitCode::kInputOutput,
                 "{}: the folder cannot be made: {} (results "
                 "have no place); choose another output.directory",
                 printable(folder), error ? error.message() : "another file has its name");
  for (const fs::path& made : missing) sync_folder_of(made.string());
}

}  // namespace magister
