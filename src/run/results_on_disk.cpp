// Rank 0 reads and writes; its error ends the job like any other.
#include "magister/run/results_on_disk.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace fs = std::filesystem;

std::string packed_later_path(const std::string& results_path) {
  const std::filesystem::path results(results_path);
  return (results.parent_path() / results.stem()).string() + ".running.h5";
}

void make_folder(const Communicator& world, const std::string& folder) {
  if (world.rank() == 0) make_folders(folder);
  world.barrier();
}

void put_path_aside(const std::string& path) {
  if (!fs::exists(fs::symlink_status(path))) return;
  int number = 1;
  while (fs::exists(fs::symlink_status(fmt::format("{}.previous-{}", path, number)))) ++number;
  const std::string aside = fmt::format("{}.previous-{}", path, number);
  std::error_code error;
  fs::rename(path, aside, error);
  MAGISTER_CHECK(!error, ExitCode::kInputOutput,
                 "{}: cannot be renamed to {} ({}; earlier results are kept); make the folder writable",
                 printable(path), printable(aside), error.message());
  sync_folder_of(aside);
  log_info("{} put aside as {}", path, aside);
}

namespace {

bool has_same_bytes(const fs::path& one, const fs::path& other) {
  constexpr std::size_t kBlock = 1 << 20;
  std::ifstream first(one, std::ios::binary), second(other, std::ios::binary);
  std::vector<char> of_first(kBlock), of_second(kBlock);
  while (first && second) {
    first.read(of_first.data(), kBlock);
    second.read(of_second.data(), kBlock);
    if (first.gcount() != second.gcount() ||
        !std::equal(of_first.begin(), of_first.begin() + first.gcount(), of_second.begin()))
      return false;
  }
  return first.eof() && second.eof();
}

// Relative paths and sizes of all files below the folder, in order. Nothing if the folder cannot be read, or if it
// holds other things than regular files and folders.
std::optional<std::map<std::string, std::uintmax_t>> files_in(const std::string& folder) {
  std::map<std::string, std::uintmax_t> files;
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return std::nullopt;
  // A range-based for would throw where a folder below cannot be read or is gone.
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::file_status status = at->symlink_status(error);
    if (error) return std::nullopt;
    if (fs::is_directory(status)) continue;
    if (!fs::is_regular_file(status)) return std::nullopt;
    files[at->path().lexically_relative(folder).string()] = at->file_size(error);
    if (error) return std::nullopt;
  }
  return error ? std::nullopt : std::optional(std::move(files));
}

}  // namespace

bool has_same_files(const std::string& folder, const std::string& other) {
  const auto files = files_in(folder);
  if (!files || files != files_in(other)) return false;
  return std::all_of(files->begin(), files->end(), [&](const auto& file) {
    return has_same_bytes(fs::path(folder) / file.first, fs::path(other) / file.first);
  });
}

void require_side_file(const std::string& results_path, const std::string& path, const char* called,
                       const char* what_to_do) {
  MAGISTER_CHECK(fs::exists(path), ExitCode::kInputOutput,
                 "{}: is not there, though {} is complete ({} was moved or removed); {}", printable(path, 4096),
                 printable(results_path, 4096), called, what_to_do);
}

void put_aside(const Communicator& world, const std::vector<std::string>& paths) {
  if (world.rank() == 0) {
    for (const std::string& path : paths) put_path_aside(path);
  }
  world.barrier();
}

ResultsFile::State state_everywhere(const Communicator& world, const std::string& results_path) {
  auto state = ResultsFile::State::kAbsent;
  if (world.rank() == 0) state = ResultsFile::state_on_disk(results_path);
  world.broadcast(&state, sizeof state, 0);
  return state;
}

std::uint64_t free_bytes_for(const std::string& results_path) {
  std::error_code error;
  fs::path folder = fs::absolute(results_path).parent_path();
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  struct statvfs space{};
  errno = 0;
  if (fail_point("results.free_space") || statvfs(folder.c_str(), &space) != 0) {
    const int reason = errno == 0 ? EIO : errno;
    fail(ExitCode::kInputOutput,
         "{}: the free space cannot be read: {} (the results might not fit); check the file system, or choose another "
         "output.directory",
         printable(folder.string(), 4096), std::strerror(reason));
  }
  return static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
}

void check_free_space(const Communicator& world, const std::string& folder, std::uint64_t bytes,
                      const std::string& made_smaller_by) {
  if (world.rank() == 0) {
    const std::uint64_t available = free_bytes_for(folder + "/x");
    MAGISTER_CHECK(
        bytes + kFreeSpaceMargin <= available, ExitCode::kInputOutput,
        "{}: {} bytes are free, but the results need {} (the run would stop before its end); free space{}, or "
        "choose another output.directory",
        printable(folder, 4096), available, bytes + kFreeSpaceMargin,
        made_smaller_by.empty() ? "" : ", lower " + made_smaller_by);
  }
  world.barrier();
}

void check_attributes_everywhere(const Communicator& world, const std::string& path, const Attributes& expected,
                                 const std::string& task_key) {
  if (world.rank() == 0) ResultsFile::check_attributes(path, expected, task_key);
  world.barrier();
}

void remove_if_ours(const std::string& path, const Attributes& expected) {
  if (!fs::is_regular_file(fs::symlink_status(path))) return;
  try {
    ResultsFile::check_attributes(path, expected);
  } catch (const Error& error) {
    log_warning("{} (it is left alone)", error.what());
    return;
  }
  ::unlink(path.c_str());
}

UnitCounts unit_counts_everywhere(const Communicator& world, const std::string& path) {
  UnitCounts counts;
  if (world.rank() == 0) counts = ResultsFile::unit_counts(path);
  world.broadcast(&counts, sizeof counts, 0);
  return counts;
}

}  // namespace magister
