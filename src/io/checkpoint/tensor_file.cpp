// Opens a model by the kind of its path, and reads windows of mapped tensors in pieces of 4 MiB whose pages are
// released at once, so that loading takes little more memory than the final weights.
#include "magister/io/checkpoint/tensor_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "io/checkpoint/dequantize.h"
#include "io/checkpoint/mapped_tensors.h"
#include "io/checkpoint/quantized_file.h"
#include "magister/core/checked.h"
#include "magister/io/checkpoint/model_path.h"

namespace magister {
namespace {

constexpr std::int64_t kPieceBytes = 4 << 20;
constexpr std::int64_t kPieceColumns = 1 << 20;  // a multiple of every block size; only vectors are longer

}  // namespace

FloatType float_type(const at::Tensor& out) {
  MAGISTER_CHECK(
      out.device().is_cpu() &&
          (out.scalar_type() == at::kFloat || out.scalar_type() == at::kBFloat16 || out.scalar_type() == at::kHalf),
      ExitCode::kInternal, "tensors are read into f32, bf16 or f16 in host memory (asked for {} on {}); report this",
      c10::toString(out.scalar_type()), out.device().str());
  if (out.scalar_type() == at::kFloat) return FloatType::kF32;
  return out.scalar_type() == at::kHalf ? FloatType::kF16 : FloatType::kBF16;
}

void check_window(const std::string& name, std::int64_t rows, std::int64_t columns, const TensorWindow& window,
                  const at::Tensor& out) {
  MAGISTER_CHECK(
      0 <= window.row_begin && window.row_begin <= window.row_end && window.row_end <= rows &&
          0 <= window.column_begin && window.column_begin <= window.column_end && window.column_end <= columns &&
          out.dim() == 2 && out.size(0) == window.row_end - window.row_begin &&
          out.size(1) == window.column_end - window.column_begin && (out.stride(1) == 1 || out.size(1) <= 1),
      ExitCode::kInternal, "window [{}, {}) x [{}, {}) of tensor {} with {} x {} (it does not fit); report this",
      window.row_begin, window.row_end, window.column_begin, window.column_end, printable(name), rows, columns);
  float_type(out);
}

namespace {

// Reads one piece: rows that fit kPieceBytes, at most kPieceColumns wide.
void read_piece(const MappedFile& file, const std::byte* base, std::int64_t row_bytes, StorageType type,
                const TensorWindow& window, FloatType to, std::byte* out, std::int64_t out_row_bytes) {
  const StorageLayout layout = layout_of(type);
  const std::int64_t first_byte = window.column_begin / layout.block_elements * layout.block_bytes;
  const std::int64_t last_byte =
      (window.column_end + layout.block_elements - 1) / layout.block_elements * layout.block_bytes;
  const std::byte* const begin = base + window.row_begin * row_bytes;
  const std::byte* const end = base + (window.row_end - 1) * row_bytes;  // where the last row begins
  // A narrow window of wide rows populates only its own pages, row by row; else one call populates all rows.
  const bool row_by_row = (last_byte - first_byte) * 2 < row_bytes && row_bytes >= 16384;
  if (!row_by_row) file.populate(begin + first_byte, end + last_byte);
  for (std::int64_t row = window.row_begin; row < window.row_end; ++row) {
    const std::byte* const from = base + row * row_bytes;
    if (row_by_row) file.populate(from + first_byte, from + last_byte);
    convert_row(type, from, window.column_begin, window.column_end, to, out + (row - window.row_begin) * out_row_bytes);
  }
  file.forget(begin + first_byte, end + last_byte);
}

}  // namespace

namespace {

std::unique_ptr<TensorFile> open_hugging_face(const std::string& path, const std::string& folder) {
  std::unique_ptr<MappedTensors> file = open_safetensors(path);
  if (const auto config = read_quantization_config(folder)) return open_quantized(std::move(file), *config);
  return file;
}

}  // namespace

std::string to_string(StorageType type) {
  switch (type) {
    case StorageType::kF32:
      return "F32";
    case StorageType::kF16:
      return "F16";
    case StorageType::kBF16:
      return "BF16";
    case StorageType::kF64:
      return "F64";
    case StorageType::kI8:
      return "I8";
    case StorageType::kI16:
      return "I16";
    case StorageType::kI32:
      return "I32";
    case StorageType::kI64:
      return "I64";
    case StorageType::kU8:
      return "U8";
    case StorageType::kBool:
      return "BOOL";
    case StorageType::kF8_E4M3:
      return "F8_E4M3";
    case StorageType::kQ8_0:
      return "Q8_0";
    case StorageType::kQ4_0:
      return "Q4_0";
    case StorageType::kQ4_1:
      return "Q4_1";
    case StorageType::kQ5_0:
      return "Q5_0";
    case StorageType::kQ5_1:
      return "Q5_1";
    case StorageType::kQ4_K:
      return "Q4_K";
    case StorageType::kQ5_K:
      return "Q5_K";
    case StorageType::kQ6_K:
      return "Q6_K";
    case StorageType::kQ2_K:
      return "Q2_K";
    case StorageType::kQ3_K:
      return "Q3_K";
    case StorageType::kIQ4_NL:
      return "IQ4_NL";
    case StorageType::kMXFP4:
      return "MXFP4";
  }
  return "?";
}

std::unique_ptr<TensorFile> TensorFile::open(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) return open_hugging_face(path, path);
  MAGISTER_CHECK(
      status.type() != std::filesystem::file_type::not_found, ExitCode::kInputOutput,
      "{}: there is no such model (nothing to load); give a .gguf file, a folder with config.json and "
      "*.safetensors, or org/name of a model in the hub's cache; `magister plan --config-only` needs no weights{}",
      printable(path), download_hint(path));
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".safetensors") return open_hugging_face(path, std::filesystem::path(path).parent_path().string());
  if (extension == ".gguf") return open_gguf(path);
  fail(ExitCode::kData,
       "{}: \"{}\" is not a model format that is read here (only GGUF and safetensors are); give a .gguf "
       "file or a folder with config.json and *.safetensors",
       printable(path), printable(extension));
}

const TensorInfo* TensorFile::find(const std::string& name) const {
  const auto& all = tensors();
  const auto at = std::lower_bound(all.begin(), all.end(), name, [](const TensorInfo& info, const std::string& wanted) {
    return info.name < wanted;
  });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

std::optional<CodeFormat> TensorFile::code_format(const std::string&) const { return std::nullopt; }

void TensorFile::read_codes(const std::string& name, IndexRange, IndexRange, const CodeWindow&) const {
  fail(ExitCode::kInternal, "tensor {} has no codes to read (code_format() says so); report this", printable(name));
}

std::uint64_t tensor_bytes(const TensorInfo& info, const std::string& path) {
  const auto what = fmt::format("{}: tensor {}", printable(path), printable(info.name));
  std::uint64_t elements = 1;
  for (const std::int64_t size : info.shape) {
    MAGISTER_CHECK(size >= 0, ExitCode::kData,
                   "{} has a dimension of {} (a size cannot be negative); fetch the file again", what, size);
    elements = checked_multiply(elements, static_cast<std::uint64_t>(size), what);
  }
  const StorageLayout layout = layout_of(info.type);
  const std::int64_t columns = info.shape.empty() ? 1 : info.shape.back();
  MAGISTER_CHECK(
      columns % layout.block_elements == 0, ExitCode::kData,
      "{} has rows of {} elements, no whole number of {} blocks of {} (it cannot be read); fetch the file again", what,
      columns, to_string(info.type), layout.block_elements);
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
  MAGISTER_CHECK(
      !info.name.empty() && info.name.size() <= kMaxTensorNameBytes, ExitCode::kData,
      "{}: a tensor has a name of {} bytes (1 to {} are allowed; the header is damaged); fetch the file again",
      printable(file.path()), info.name.size(), kMaxTensorNameBytes);
  info.num_bytes = tensor_bytes(info, file.path());
  const std::uint64_t end = checked_add(offset, info.num_bytes, "end of a tensor");
  MAGISTER_CHECK(end <= file.size(), ExitCode::kData,
                 "{}: tensor {} is at bytes {} to {}, but the file has {} (it is cut short or its header is wrong); "
                 "fetch the file again",
                 printable(file.path()), printable(info.name), offset, end, file.size());
  infos_.push_back(std::move(info));
  places_.push_back({file_index, offset});
}

void MappedTensors::finish() {
  std::vector<std::size_t> order(infos_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return infos_[a].name < infos_[b].name; });
  std::vector<TensorInfo> infos;
  std::vector<Place> places;
  infos.reserve(order.size());
  places.reserve(order.size());
  for (const std::size_t i : order) {
    MAGISTER_CHECK(infos.empty() || infos.back().name != infos_[i].name, ExitCode::kData,
                   "{}: tensor {} is there twice (it is ambiguous); fetch the file again",
                   printable(paths_[places_[i].file_index]), printable(infos_[i].name));
    infos.push_back(std::move(infos_[i]));
    places.push_back(places_[i]);
  }
  infos_ = std::move(infos);
  places_ = std::move(places);
}

const std::string& MappedTensors::path_of(const TensorInfo& info) const {
  return paths_[places_[static_cast<std::size_t>(&info - infos_.data())].file_index];
}

std::span<const std::byte> MappedTensors::bytes_of(const TensorInfo& info) const {
  const Place& place = places_[static_cast<std::size_t>(&info - infos_.data())];
  return files_[place.file_index].bytes().subspan(place.offset, info.num_bytes);
}

void MappedTensors::populate(const TensorInfo& info, IndexRange bytes) const {
  const MappedFile& file = files_[places_[static_cast<std::size_t>(&info - infos_.data())].file_index];
  file.check_unchanged();
  const std::byte* const begin = bytes_of(info).data();
  if (bytes.size() > 0) file.populate(begin + bytes.begin, begin + bytes.end);
}

void MappedTensors::forget(const TensorInfo& info, IndexRange bytes) const {
  const MappedFile& file = files_[places_[static_cast<std::size_t>(&info - infos_.data())].file_index];
  file.forget(bytes_of(info).data() + bytes.begin, bytes_of(info).data() + bytes.end);
  file.check_unchanged();
}

void MappedTensors::read(const std::string& name, std::int64_t row_begin, std::int64_t row_end,
                         std::int64_t column_begin, std::int64_t column_end, at::Tensor out) const {
  const TensorInfo* info = find(name);
  MAGISTER_CHECK(info != nullptr, ExitCode::kData,
                 "{}: there is no tensor {} (the model cannot be built); check that the "
                 "file belongs to the model",
                 printable(paths_.front()), printable(name));
  const std::int64_t columns = info->shape.empty() ? 1 : info->shape.back();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < info->shape.size(); ++i) rows *= info->shape[i];
  check_window(name, rows, columns, {row_begin, row_end, column_begin, column_end}, out);
  const FloatType to = float_type(out);
  if (row_begin == row_end || column_begin == column_end) return;
  const Place& place = places_[static_cast<std::size_t>(info - infos_.data())];
  const MappedFile& file = files_[place.file_index];
  file.check_unchanged();
  const StorageLayout layout = layout_of(info->type);
  const std::int64_t row_bytes = columns / layout.block_elements * layout.block_bytes;
  const std::byte* const base = file.bytes().data() + place.offset;
  const std::int64_t element_bytes = static_cast<std::int64_t>(out.element_size());
  const std::int64_t out_row_bytes = out.stride(0) * element_bytes;
  auto* const to_bytes = static_cast<std::byte*>(out.data_ptr());
  const std::int64_t step = std::max<std::int64_t>(1, kPieceBytes / row_bytes);
  for (std::int64_t row = row_begin; row < row_end; row += step) {
    for (std::int64_t column = column_begin; column < column_end; column += kPieceColumns) {
      const TensorWindow window{row, std::min(row + step, row_end), column,
                                std::min(column + kPieceColumns, column_end)};
      read_piece(file, base, row_bytes, info->type, window, to,
                 to_bytes + (row - row_begin) * out_row_bytes + (column - column_begin) * element_bytes, out_row_bytes);
    }
  }
  file.check_unchanged();
}

}  // namespace magister
