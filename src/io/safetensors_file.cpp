// safetensors: one file, or a folder with model.safetensors or an index of shards. Offsets must be contiguous, without
// overlap or holes, and cover the file. Source: huggingface/safetensors format description.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "io/dequantize.h"
#include "io/mapped_tensors.h"
#include "magister/core/checked.h"
#include "magister/core/utf8.h"

namespace magister {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr int kMaxDepth = 8;

// JSON without repeated keys and without depth bombs.
json parse_strict(std::string_view text, const std::string& path) {
  MAGISTER_CHECK(find_invalid_utf8(text) == text.size(), ExitCode::kData,
                 "{}: its JSON is not valid UTF-8 at byte {} (it cannot be read); fetch the file again", printable(path),
                 find_invalid_utf8(text));
  std::vector<std::set<std::string>> keys(kMaxDepth + 2);
  const auto look = [&](int depth, json::parse_event_t event, json& parsed) {
    MAGISTER_CHECK(depth <= kMaxDepth, ExitCode::kData, "{}: its JSON is nested deeper than {} (no tensor file is); fetch "
                   "the file again", printable(path), kMaxDepth);
    if (event == json::parse_event_t::object_start) keys[static_cast<std::size_t>(depth) + 1].clear();
    if (event == json::parse_event_t::key) {
      const auto key = parsed.get<std::string>();
      MAGISTER_CHECK(keys[static_cast<std::size_t>(depth)].insert(key).second, ExitCode::kData,
                     "{}: key \"{}\" is there twice (which one is meant?); fetch the file again", printable(path),
                     printable(key));
    }
    return true;
  };
  try {
    return json::parse(text, look);
  } catch (const json::exception& error) {
    fail(ExitCode::kData, "{}: its JSON cannot be read ({}); fetch the file again", printable(path),
         printable(error.what()));
  }
}

StorageType storage_type(const std::string& dtype, const std::string& path, const std::string& name) {
  static const std::map<std::string, StorageType> kTypes = {
      {"F32", StorageType::kF32}, {"F16", StorageType::kF16}, {"BF16", StorageType::kBF16}, {"F64", StorageType::kF64},
      {"I8", StorageType::kI8},   {"I16", StorageType::kI16}, {"I32", StorageType::kI32},   {"I64", StorageType::kI64},
      {"U8", StorageType::kU8},   {"BOOL", StorageType::kBool}};
  const auto found = kTypes.find(dtype);
  MAGISTER_CHECK(found != kTypes.end(), ExitCode::kData,
                 "{}: tensor {} has dtype {} (read here: F64, F32, F16, BF16, I8 to I64, U8, BOOL); convert the model to "
                 "one of these", printable(path), printable(name), printable(dtype));
  return found->second;
}

std::uint64_t unsigned_number(const json& value, const std::string& path, const std::string& what) {
  MAGISTER_CHECK(value.is_number_unsigned() && value.get<std::uint64_t>() <= (1ull << 62), ExitCode::kData,
                 "{}: {} is {} (a whole number from 0 is expected); fetch the file again", printable(path), printable(what),
                 printable(value.dump(-1, ' ', false, json::error_handler_t::replace)));
  return value.get<std::uint64_t>();
}

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
    MAGISTER_CHECK(bytes.size() >= 8, ExitCode::kData,
                   "{}: has {} bytes (a safetensors file begins with the 8-byte length of its header); fetch the file again",
                   printable(path), bytes.size());
    std::uint64_t header_bytes = 0;
    std::copy_n(bytes.begin(), 8, reinterpret_cast<std::byte*>(&header_bytes));
    MAGISTER_CHECK(header_bytes <= kMaxHeaderBytes && header_bytes <= bytes.size() - 8, ExitCode::kData,
                   "{}: its header says {} bytes, but the file has {} and {} are allowed (it is cut short or no safetensors "
                   "file); fetch the file again", printable(path), header_bytes, bytes.size(), kMaxHeaderBytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
    MAGISTER_CHECK(text.starts_with('{'), ExitCode::kData,
                   "{}: its header does not begin with \"{{\" (it is no safetensors file); fetch the file again",
                   printable(path));
    const json header = parse_strict(text, path);
    read_header(header, index, 8 + header_bytes);
  }

  void read_header(const json& header, std::size_t index, std::uint64_t data) {
    const std::string& path = file(index).path();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const bool complete = entry.is_object() && entry.contains("dtype") && entry.contains("shape") &&
                            entry.contains("data_offsets") && entry["dtype"].is_string() && entry["shape"].is_array() &&
                            entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2;
      MAGISTER_CHECK(complete, ExitCode::kData,
                     "{}: tensor {} has no proper dtype, shape and data_offsets (it cannot be read); fetch the file again",
                     printable(path), printable(name));
      TensorInfo info;
      info.name = name;
      info.type = storage_type(entry["dtype"].get<std::string>(), path, name);
      MAGISTER_CHECK(entry["shape"].size() <= 8, ExitCode::kData, "{}: tensor {} has {} dimensions (8 are allowed); fetch "
                     "the file again", printable(path), printable(name), entry["shape"].size());
      for (const json& size : entry["shape"]) {
        info.shape.push_back(static_cast<std::int64_t>(unsigned_number(size, path, "a dimension of " + name)));
      }
      const std::uint64_t begin = unsigned_number(entry["data_offsets"][0], path, "an offset of " + name);
      const std::uint64_t end = unsigned_number(entry["data_offsets"][1], path, "an offset of " + name);
      const std::uint64_t needed = tensor_bytes(info, path);
      MAGISTER_CHECK(begin <= end && end - begin == needed, ExitCode::kData,
                     "{}: tensor {} stands at bytes {} to {}, but its shape and dtype need {} bytes (the header is wrong); "
                     "fetch the file again", printable(path), printable(name), begin, end, needed);
      ranges.emplace_back(begin, end);
      add_tensor(std::move(info), index, checked_add(data, begin, "begin of a tensor"));
    }
    std::sort(ranges.begin(), ranges.end());
    std::uint64_t covered = 0;
    for (const auto& [begin, end] : ranges) {
      MAGISTER_CHECK(begin == covered, ExitCode::kData,
                     "{}: a tensor begins at byte {} of the data, where {} was expected (tensors overlap or leave a hole); "
                     "fetch the file again", printable(path), begin, covered);
      covered = end;
    }
    MAGISTER_CHECK(data + covered == file(index).size(), ExitCode::kData,
                   "{}: the tensors end at byte {}, the file at {} (it is cut short or was appended to); fetch the file "
                   "again", printable(path), data + covered, file(index).size());
  }
};

std::string read_small_file(const fs::path& path) {
  const MappedFile file(path.string());
  MAGISTER_CHECK(file.size() <= kMaxHeaderBytes, ExitCode::kData, "{}: has {} bytes (no index is that large); fetch the file "
                 "again", printable(path.string()), file.size());
  return {reinterpret_cast<const char*>(file.bytes().data()), file.size()};
}

// The shard files that an index names, each once, all inside the folder.
std::vector<std::string> shards_of(const fs::path& index) {
  const json content = parse_strict(read_small_file(index), index.string());
  MAGISTER_CHECK(content.is_object() && content.contains("weight_map") && content["weight_map"].is_object(), ExitCode::kData,
                 "{}: has no \"weight_map\" (the shards are not named); fetch the file again", printable(index.string()));
  std::set<std::string> names;
  for (const auto& [tensor, name] : content["weight_map"].items()) {
    MAGISTER_CHECK(name.is_string(), ExitCode::kData, "{}: the file of tensor {} is no text (a file name is expected); fetch "
                   "the file again", printable(index.string()), printable(tensor));
    names.insert(name.get<std::string>());
  }
  std::vector<std::string> files;
  for (const std::string& name : names) {
    MAGISTER_CHECK(!name.empty() && fs::path(name).filename() == name && name != "..", ExitCode::kData,
                   "{}: names the shard \"{}\" (shards lie beside their index, without a folder); fetch the file again",
                   printable(index.string()), printable(name));
    files.push_back((index.parent_path() / name).string());
  }
  return files;
}

// Every tensor of the index must stand in the shard that it names, and nothing else in them.
void check_index(const fs::path& index, const TensorFile& file) {
  const json content = parse_strict(read_small_file(index), index.string());
  for (const auto& [tensor, name] : content["weight_map"].items()) {
    MAGISTER_CHECK(file.find(tensor) != nullptr, ExitCode::kData,
                   "{}: tensor {} is named but stands in no shard (the model is incomplete); fetch the shards again",
                   printable(index.string()), printable(tensor));
  }
}

}  // namespace

std::unique_ptr<TensorFile> open_safetensors(const std::string& path) {
  if (!fs::is_directory(path)) return std::make_unique<SafetensorsFile>(std::vector<std::string>{path});
  const fs::path folder = path, single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (fs::exists(index)) {
    auto file = std::make_unique<SafetensorsFile>(shards_of(index));
    check_index(index, *file);
    return file;
  }
  MAGISTER_CHECK(fs::exists(single), ExitCode::kInputOutput,
                 "{}: has neither model.safetensors nor model.safetensors.index.json (there are no weights); give a "
                 "model's folder or a .gguf file", printable(path));
  return std::make_unique<SafetensorsFile>(std::vector<std::string>{single.string()});
}

}  // namespace magister
