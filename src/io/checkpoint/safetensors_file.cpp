// safetensors: one file, or a folder with model.safetensors or an index of shards. Offsets must be contiguous, without
// overlap or holes, and cover the file. Source: huggingface/safetensors format description.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "io/checkpoint/mapped_tensors.h"
#include "io/checkpoint/safetensors_header.h"
#include "magister/core/checked.h"
#include "magister/core/log.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

class SafetensorsFile final : public MappedTensors {
 public:
  explicit SafetensorsFile(const std::vector<std::string>& files) {
    for (const std::string& path : files) read_file(path);
    finish();
  }

 private:
  void read_file(const std::string& path) {
    const std::size_t index = add_file(MappedFile(path));
    const auto bytes = file(index).bytes();
    MAGISTER_CHECK(
        bytes.size() >= 8, ExitCode::kData,
        "{}: has {} bytes (a safetensors file begins with the 8-byte length of its header); fetch the file again",
        printable(path), bytes.size());
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
    MAGISTER_CHECK(
        header_bytes <= kMaxHeaderBytes && header_bytes <= bytes.size() - 8, ExitCode::kData,
        "{}: its header says {} bytes, but the file has {} and {} are allowed (it is cut short or no safetensors "
        "file); fetch the file again",
        printable(path), header_bytes, bytes.size(), kMaxHeaderBytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
    MAGISTER_CHECK(text.starts_with('{'), ExitCode::kData,
                   "{}: its header does not begin with \"{{\" (it is not a safetensors file); fetch the file again",
                   printable(path));
    place_tensors(parse_safetensors_header(text, path), index, 8 + header_bytes);
    file(index).forget(bytes.data(), bytes.data() + 8 + header_bytes);
  }

  void place_tensors(std::vector<SafetensorsEntry> entries, std::size_t index, std::uint64_t data) {
    const std::string& path = file(index).path();
    std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t covered = 0;
    for (SafetensorsEntry& entry : entries) {
      const std::uint64_t needed = tensor_bytes(entry.info, path);
      MAGISTER_CHECK(entry.begin <= entry.end && entry.end - entry.begin == needed, ExitCode::kData,
                     "{}: tensor {} is at bytes {} to {}, but its shape and dtype need {} bytes (the header is wrong); "
                     "fetch the file again",
                     printable(path), printable(entry.info.name), entry.begin, entry.end, needed);
      MAGISTER_CHECK(
          entry.begin == covered, ExitCode::kData,
          "{}: tensor {} begins at byte {} of the data, where {} was expected (tensors overlap or leave a hole); "
          "fetch the file again",
          printable(path), printable(entry.info.name), entry.begin, covered);
      covered = entry.end;
      add_tensor(std::move(entry.info), index, checked_add(data, entry.begin, "begin of a tensor"));
    }
    MAGISTER_CHECK(
        data + covered == file(index).size(), ExitCode::kData,
        "{}: the tensors end at byte {}, the file at {} (it is cut short or was appended to); fetch the file "
        "again",
        printable(path), data + covered, file(index).size());
  }
};

std::unique_ptr<MappedTensors> open_shards(const fs::path& index) {
  const MappedFile file(index.string());
  MAGISTER_CHECK(file.size() <= kMaxHeaderBytes, ExitCode::kData,
                 "{}: has {} bytes (no index is that large); fetch the file "
                 "again",
                 printable(index.string()), file.size());
  const auto shards =
      parse_safetensors_index({reinterpret_cast<const char*>(file.bytes().data()), file.size()}, index.string());
  std::set<std::string> names;
  for (const auto& [tensor, shard] : shards) names.insert(shard);
  std::vector<std::string> paths;
  paths.reserve(names.size());
  for (const std::string& name : names) paths.push_back((index.parent_path() / name).string());
  auto tensors = std::make_unique<SafetensorsFile>(paths);
  for (const auto& [tensor, shard] : shards) {
    const TensorInfo* info = tensors->find(tensor);
    MAGISTER_CHECK(info != nullptr && fs::path(tensors->path_of(*info)).filename() == shard, ExitCode::kData,
                   "{}: tensor {} is not in {}, which the index names (the shards are incomplete or not of one model); "
                   "fetch them again",
                   printable(index.string()), printable(tensor), printable(shard));
  }
  return tensors;
}

// Prefers the single file, as transformers does: saving into a folder that held shards leaves their index there. Logged
// once per folder.
void say_which_weights(const fs::path& single, const fs::path& index) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (!said.insert(single.string()).second) return;
  log_info("{}: is read, and {} next to it is not (it is an index of earlier shards, or of the same weights)",
           printable(single.string()), index.filename().string());
}

}  // namespace

std::unique_ptr<MappedTensors> open_safetensors(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::make_unique<SafetensorsFile>(std::vector<std::string>{path});
  const fs::path folder = path, single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (fs::exists(single, error)) {
    if (fs::exists(index, error)) say_which_weights(single, index);
    return std::make_unique<SafetensorsFile>(std::vector<std::string>{single.string()});
  }
  MAGISTER_CHECK(fs::exists(index, error), ExitCode::kInputOutput,
                 "{}: has neither model.safetensors nor model.safetensors.index.json (there are no weights); give a "
                 "model's folder or a .gguf file{}",
                 printable(path),
                 fs::exists(folder / "config.json", error)
                     ? "; of a config.json alone `magister plan --config-only` tells the memory, and `task: train` "
                       "with model.config begins with drawn weights"
                     : "");
  return open_shards(index);
}

}  // namespace magister
