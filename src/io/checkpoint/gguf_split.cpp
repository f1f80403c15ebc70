// Names have five digits, so there are at most 99,999 parts; each part must exist before the next one is looked up.
#include "io/checkpoint/gguf_split.h"

#include <filesystem>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::uint64_t kMaxParts = 99'999;

// llama.cpp writes the keys as u16 and i32, other tools as other integers.
std::optional<std::uint64_t> number(const Metadata& metadata, const char* key, std::uint64_t most,
                                    const std::string& path) {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return std::nullopt;
  const auto* const wide = std::get_if<std::uint64_t>(&at->second);
  const auto* const value = std::get_if<std::int64_t>(&at->second);
  const bool sound = wide != nullptr || (value != nullptr && *value >= 0);
  const std::uint64_t result = wide != nullptr ? *wide : sound ? static_cast<std::uint64_t>(*value) : 0;
  MAGISTER_CHECK(sound && result <= most, ExitCode::kData,
                 "{}: {} is not a whole number from 0 to {} (the parts of the model could not be found); fetch the "
                 "file again",
                 printable(path), key, most);
  return result;
}

std::string ending(std::uint64_t index, std::uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

}  // namespace

std::optional<GgufSplit> gguf_split(const Metadata& metadata, const std::string& path) {
  const auto count = number(metadata, "split.count", kMaxParts, path);
  if (!count || *count <= 1) return std::nullopt;
  const auto index = number(metadata, "split.no", kMaxParts, path);
  const auto num_tensors = number(metadata, "split.tensors.count", INT32_MAX, path);
  MAGISTER_CHECK(
      index && num_tensors, ExitCode::kData,
      "{}: split.count is {}, but {} is missing (the parts of the model could not be checked); fetch the file "
      "again",
      printable(path), *count, index ? "split.tensors.count" : "split.no");
  MAGISTER_CHECK(*index < *count, ExitCode::kData,
                 "{}: split.no is {} and split.count {} (parts are counted from 0); fetch the file again",
                 printable(path), *index, *count);
  return GgufSplit{*index, *count, *num_tensors};
}

std::vector<std::string> gguf_parts(const std::string& path, const GgufSplit& split) {
  const std::string own = ending(split.index, split.count);
  MAGISTER_CHECK(
      path.ends_with(own), ExitCode::kData,
      "{}: says that it is part {} of {}, but its name does not end in {} (the other parts could not be found, "
      "or files were exchanged); give the parts their own names",
      printable(path), split.index + 1, split.count, own);
  const std::string stem = path.substr(0, path.size() - own.size());
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < split.count; ++i) {
    paths.push_back(stem + ending(i, split.count));
    std::error_code error;
    MAGISTER_CHECK(std::filesystem::exists(paths.back(), error), ExitCode::kInputOutput,
                   "{}: is not there (part {} of the {} of {}, and a model is read whole); put it into the same folder",
                   printable(paths.back()), i + 1, split.count, printable(path));
  }
  return paths;
}

void check_gguf_part(const Metadata& metadata, const std::string& path, std::uint64_t index, const GgufSplit& split,
                     const std::string& given) {
  const std::optional<GgufSplit> own = gguf_split(metadata, path);
  MAGISTER_CHECK(own.has_value(), ExitCode::kData,
                 "{}: is a whole model, where part {} of the {} of {} is to be (it is not read twice); fetch the part "
                 "again",
                 printable(path), index + 1, split.count, printable(given));
  MAGISTER_CHECK(
      own->index == index && own->count == split.count, ExitCode::kData,
      "{}: says that it is part {} of {}, but its name is that of part {} of {} (files were exchanged or are "
      "there twice); give the parts their own names",
      printable(path), own->index + 1, own->count, index + 1, split.count);
  MAGISTER_CHECK(own->num_tensors == split.num_tensors, ExitCode::kData,
                 "{}: split.tensors.count is {}, in {} it is {} (they are parts of different models); fetch the parts "
                 "again",
                 printable(path), own->num_tensors, printable(given), split.num_tensors);
}

}  // namespace magister
