// Lists the files: the matches of patterns, and each file's format by the end of its name.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <tuple>

#include "io/dataset/dataset_files.h"
#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/agreed_errors.h"
#include "magister/io/file_pattern.h"

namespace magister {
namespace {

std::vector<std::string> expand(const std::string& given, const DatasetConfig& config) {
  const std::string pattern = find_dataset(given);
  struct stat status{};
  if (::stat(pattern.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    return files_of_folder(pattern, config.config, config.split);
  MAGISTER_CHECK(config.split.empty(), ExitCode::kConfig,
                 "dataset.split is {}, but {} is no folder (a file has no splits); remove it",
                 printable(config.split, 80), printable(given));
  MAGISTER_CHECK(config.config.empty(), ExitCode::kConfig,
                 "dataset.config is {}, but {} is no folder (a file has no configurations); remove it",
                 printable(config.config, 80), printable(given));
  std::vector<std::string> paths = paths_matching(pattern);
  MAGISTER_CHECK(!paths.empty(), ExitCode::kInputOutput,
                 "{}: no file matches (there is nothing to read); check "
                 "dataset.path",
                 printable(pattern));
  return paths;
}

constexpr const char* kKnownFormats =
    ".jsonl, .json, .csv, .tsv, .txt, each also with .gz or .zst after it, .parquet, .arrow, .h5 of teacher_logits or "
    "with token ids";

constexpr std::pair<const char*, DataKind> kKinds[] = {{".jsonl", DataKind::kJsonLines}, {".json", DataKind::kJson},
                                                       {".csv", DataKind::kCsv},         {".tsv", DataKind::kTsv},
                                                       {".parquet", DataKind::kParquet}, {".arrow", DataKind::kArrow},
                                                       {".txt", DataKind::kText},        {".h5", DataKind::kResults}};

// A file's format by the end of its name; nullopt: not supported.
std::optional<std::pair<DataKind, Compression>> kind_of(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  Compression compression = Compression::kNone;
  if (name.ends_with(".gz")) compression = Compression::kGzip;
  if (name.ends_with(".zst")) compression = Compression::kZstd;
  if (compression != Compression::kNone) name.resize(name.rfind('.'));
  for (const auto& [end, kind] : kKinds) {
    const bool random_access = kind == DataKind::kParquet || kind == DataKind::kArrow || kind == DataKind::kResults;
    // These formats compress their own columns or none; inside another compression their parts could not be found.
    if (name.ends_with(end) && (!random_access || compression == Compression::kNone)) return {{kind, compression}};
  }
  return std::nullopt;
}

DataFile examine(const std::string& path, const DatasetConfig& config) {
  DataFile file;
  file.path = path;
  struct stat status{};
  const bool is_there = ::stat(path.c_str(), &status) == 0, is_folder = is_there && S_ISDIR(status.st_mode);
  const int error = errno;
  // A missing path without a file ending, such as a missing folder, is reported here: no ending could be the fault.
  MAGISTER_CHECK(is_there || std::filesystem::path(path).has_extension(), ExitCode::kInputOutput,
                 "{}: cannot be opened ({}; the data set cannot be read); check the path and its permissions",
                 printable(path), std::strerror(error));
  const auto kind = kind_of(path);
  MAGISTER_CHECK(kind || is_folder, ExitCode::kConfig,
                 "{}: files that end in \"{}\" are not read as data sets ({} are); convert the file or name another",
                 printable(path), printable(std::filesystem::path(path).extension().string()), kKnownFormats);
  if (kind) std::tie(file.kind, file.compression) = *kind;
  MAGISTER_CHECK(
      file.kind != DataKind::kText || is_folder ||
          (config.tokens_field.empty() && config.key_field.empty() && !config.whole_record),
      ExitCode::kConfig,
      "{}: plain text has no fields (dataset.tokens, dataset.messages, dataset.key or the task names one); use .jsonl "
      "or leave them out",
      printable(path));
  MAGISTER_CHECK(
      file.kind == DataKind::kResults || (config.lengths_field.empty() && config.offsets_field.empty()),
      ExitCode::kConfig,
      "{}: dataset.{} is given, but this is no HDF5 file (lists of other files have their lengths); remove it",
      printable(path), config.lengths_field.empty() ? "offsets" : "lengths");
  file.version = LineReader(path).version();
  return file;
}

// Serialises the list for the other ranks: kind, compression, version, source, path, NUL.
std::string packed(const std::vector<DataFile>& files) {
  std::string bytes;
  for (const DataFile& file : files) {
    bytes += {static_cast<char>(file.kind), static_cast<char>(file.compression)};
    bytes.append(reinterpret_cast<const char*>(&file.version), sizeof file.version);
    bytes.append(reinterpret_cast<const char*>(&file.source), sizeof file.source);
    bytes.append(file.path.c_str(), file.path.size() + 1);
  }
  return bytes;
}

std::vector<DataFile> unpacked(const std::string& bytes) {
  std::vector<DataFile> files;
  for (std::size_t at = 0; at < bytes.size();) {
    DataFile& file = files.emplace_back();
    file.kind = static_cast<DataKind>(bytes[at++]);
    file.compression = static_cast<Compression>(bytes[at++]);
    std::memcpy(&file.version, bytes.data() + at, sizeof file.version);
    at += sizeof file.version;
    std::memcpy(&file.source, bytes.data() + at, sizeof file.source);
    file.path = bytes.c_str() + at + sizeof file.source;
    at += sizeof file.source + file.path.size() + 1;
  }
  return files;
}

// The mix's source that path number `path` of the configuration belongs to.
std::uint32_t source_of(const DatasetConfig& config, std::size_t path) {
  std::uint32_t source = 0;
  if (!config.mix) return source;
  for (std::size_t end = config.mix->sources.at(0).num_paths; end <= path;)
    end += config.mix->sources.at(++source).num_paths;
  return source;
}

void warn_of_repeats(const std::vector<DataFile>& files) {
  std::set<std::string> seen;
  for (const DataFile& file : files) {
    if (!seen.insert(file.path).second) {
      log_warning("{}: is named twice in dataset.path; its records are read twice", printable(file.path));
    }
  }
}

}  // namespace

bool is_data_file(const std::string& name) {
  const auto kind = kind_of(name);
  return kind && kind->first != DataKind::kResults;
}

std::string format_name(const DataFile& file) {
  // Every kind has an entry in kKinds.
  const auto* found = std::begin(kKinds);
  while (found + 1 != std::end(kKinds) && found->second != file.kind) ++found;
  const char* const packed = file.compression == Compression::kGzip   ? ".gz"
                             : file.compression == Compression::kZstd ? ".zst"
                                                                      : "";
  return std::string(found->first + 1) + packed;
}

std::vector<DataFile> list_data_files(const Communicator& world, const DatasetConfig& config) {
  std::string bytes;
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    MAGISTER_CHECK(!config.paths.empty(), ExitCode::kConfig,
                   "dataset.path names no file (there is nothing to read); name one");
    std::vector<DataFile> files;
    for (std::size_t i = 0; i < config.paths.size(); ++i) {
      const std::string& pattern = config.paths[i];
      MAGISTER_CHECK(!pattern.empty() && pattern.find('\0') == std::string::npos, ExitCode::kConfig,
                     "dataset.path holds an empty path or a NUL character (no file has such a name); remove it");
      for (const std::string& path : expand(pattern, config)) {
        files.push_back(examine(path, config));
        files.back().source = source_of(config, i);
      }
    }
    warn_of_repeats(files);
    bytes = packed(files);
  });
  world.broadcast(bytes, 0);
  return unpacked(bytes);
}

}  // namespace magister
