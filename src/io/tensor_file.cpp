// Opening by kind of path, and reading windows of mapped tensors.
#include "magister/io/tensor_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "io/dequantize.h"
#include "io/mapped_tensors.h"
#include "magister/core/checked.h"

namespace magister {

std::string to_string(StorageType type) {
  switch (type) {
    case StorageType::kF32: return "F32";
    case StorageType::kF16: return "F16";
    case StorageType::kBF16: return "BF16";
    case StorageType::kF64: return "F64";
    case StorageType::kI8: return "I8";
    case StorageType::kI16: return "I16";
    case StorageType::kI32: return "I32";
    case StorageType::kI64: return "I64";
    case StorageType::kU8: return "U8";
    case StorageType::kBool: return "BOOL";
    case StorageType::kQ8_0: return "Q8_0";
    case StorageType::kQ4_0: return "Q4_0";
    case StorageType::kQ4_1: return "Q4_1";
    case StorageType::kQ6_K: return "Q6_K";
  }
  return "?";
}

std::unique_ptr<TensorFile> TensorFile::open(const std::string& path) {
  if (std::filesystem::is_directory(path)) return open_safetensors(path);
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".safetensors") return open_safetensors(path);
  if (extension == ".gguf") return open_gguf(path);
  MAGISTER_CHECK(std::filesystem::exists(path), ExitCode::kInputOutput,
                 "{}: there is no such model (nothing to load); give a .gguf file or a folder with config.json and "
                 "*.safetensors", printable(path));
  fail(ExitCode::kData, "{}: \"{}\" is no model format that is read here (only GGUF and safetensors are); give a .gguf "
       "file or a folder with config.json and *.safetensors", printable(path), printable(extension));
}

const TensorInfo* TensorFile::find(const std::string& name) const {
  const auto& all = tensors();
  const auto at = std::lower_bound(all.begin(), all.end(), name,
                                   [](const TensorInfo& info, const std::string& wanted) { return info.name < wanted; });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

std::uint64_t tensor_bytes(const TensorInfo& info, const std::string& path) {
  const auto what = fmt::format("{}: tensor {}", printable(path), printable(info.name));
  std::uint64_t elements = 1;
  for (const std::int64_t size : info.shape) {
    MAGISTER_CHECK(size >= 0, ExitCode::kData, "{} has a dimension of {} (a size cannot be negative); fetch the file again",
                   what, size);
    elements = checked_multiply(elements, static_cast<std::uint64_t>(size), what);
  }
  const StorageLayout layout = layout_of(info.type);
  const std::int64_t columns = info.shape.empty() ? 1 : info.shape.back();
  MAGISTER_CHECK(columns % layout.block_elements == 0, ExitCode::kData,
                 "{} has rows of {} elements, no whole number of {} blocks of {} (it cannot be read); fetch the file again",
                 what, columns, to_string(info.type), layout.block_elements);
  return checked_multiply(elements / static_cast<std::uint64_t>(layout.block_elements),
                          static_cast<std::uint64_t>(layout.block_bytes), what);
}

std::size_t MappedTensors::add_file(MappedFile file) {
  paths_.push_back(file.path());
  files_.push_back(std::move(file));
  return files_.size() - 1;
}

void MappedTensors::add_tensor(TensorInfo info, std::size_t file_index, std::uint64_t offset) {
  const MappedFile& file = files_[file_index];
  info.num_bytes = tensor_bytes(info, file.path());
  const std::uint64_t end = checked_add(offset, info.num_bytes, "end of a tensor");
  MAGISTER_CHECK(end <= file.size(), ExitCode::kData,
                 "{}: tensor {} stands at bytes {} to {}, but the file has {} (it is cut short or its header is wrong); "
                 "fetch the file again", printable(file.path()), printable(info.name), offset, end, file.size());
  MAGISTER_CHECK(places_.emplace(info.name, Place{file_index, offset}).second, ExitCode::kData,
                 "{}: tensor {} is there twice (which one is meant?); fetch the file again", printable(file.path()),
                 printable(info.name));
  infos_.push_back(std::move(info));
}

void MappedTensors::finish() {
  std::sort(infos_.begin(), infos_.end(), [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
}

namespace {

// Writes one row of f32 values into a row of `out`, whatever its type.
void store_row(const float* values, std::int64_t count, at::ScalarType type, void* to) {
  if (type == at::kFloat) {
    std::copy(values, values + count, static_cast<float*>(to));
  } else if (type == at::kBFloat16) {
    for (std::int64_t i = 0; i < count; ++i) static_cast<at::BFloat16*>(to)[i] = values[i];
  } else {
    for (std::int64_t i = 0; i < count; ++i) static_cast<at::Half*>(to)[i] = values[i];
  }
}

}  // namespace

void MappedTensors::read(const std::string& name, std::int64_t row_begin, std::int64_t row_end,
                         std::int64_t column_begin, std::int64_t column_end, at::Tensor out) const {
  const TensorInfo* info = find(name);
  MAGISTER_CHECK(info != nullptr, ExitCode::kData, "{}: there is no tensor {} (the model cannot be built); check that the "
                 "file belongs to the model", paths_.front(), printable(name));
  const std::int64_t columns = info->shape.empty() ? 1 : info->shape.back();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < info->shape.size(); ++i) rows *= info->shape[i];
  MAGISTER_CHECK(0 <= row_begin && row_begin <= row_end && row_end <= rows && 0 <= column_begin &&
                     column_begin <= column_end && column_end <= columns && out.dim() == 2 &&
                     out.size(0) == row_end - row_begin && out.size(1) == column_end - column_begin && out.stride(1) == 1,
                 ExitCode::kInternal, "window [{}, {}) x [{}, {}) of tensor {} with {} x {} (it does not fit); report this",
                 row_begin, row_end, column_begin, column_end, printable(name), rows, columns);
  const Place& place = places_.at(name);
  const MappedFile& file = files_[place.file_index];
  const StorageLayout layout = layout_of(info->type);
  const std::int64_t row_bytes = columns / layout.block_elements * layout.block_bytes;
  const std::byte* base = file.bytes().data() + place.offset;
  const std::int64_t count = column_end - column_begin;
  std::vector<float> line(out.scalar_type() == at::kFloat ? 0 : static_cast<std::size_t>(count));
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    void* to = static_cast<std::byte*>(out.data_ptr()) + (row - row_begin) * out.stride(0) * out.element_size();
    float* values = line.empty() ? static_cast<float*>(to) : line.data();
    if (count == 0) continue;
    convert_to_f32(info->type, base + row * row_bytes, column_begin, column_end, values);
    if (!line.empty()) store_row(values, count, out.scalar_type(), to);
  }
  file.forget(base + row_begin * row_bytes, base + row_end * row_bytes);
}

}  // namespace magister
