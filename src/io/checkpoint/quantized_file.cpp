// The file: names, and reading in tiles of 64 rows. Their stored bytes are populated before and released afterwards.
#include "io/checkpoint/quantized_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "io/checkpoint/dequantize.h"
#include "magister/core/error.h"

namespace magister {
namespace {

// Outputs; as stored words half a cache line for AWQ (8 outputs a word), four for GPTQ.
constexpr std::int64_t kTileRows = 64;
constexpr std::int64_t kTileColumns = 4096;  // a tile of f32 stays in L2
constexpr std::int64_t kExpertRows = 256;    // MXFP4, whose outputs are columns: a tile stays in L2, too

// Bytes of the codes that a window touches, as whole rows of the stored tensor.
IndexRange touched(const QuantizedWeight& w, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                   std::int64_t column_end) {
  const std::uint64_t size = w.codes.info->num_bytes;
  const auto part = [&](std::int64_t begin, std::int64_t end, std::int64_t rows) {
    const std::uint64_t row_bytes = size / static_cast<std::uint64_t>(rows);
    return IndexRange{static_cast<std::uint64_t>(begin) * row_bytes, static_cast<std::uint64_t>(end) * row_bytes};
  };
  const std::int64_t n = w.layout == CodeLayout::kWordsByInput ? 32 / w.bits : 1;
  if (w.layout == CodeLayout::kWordsByInput || w.layout == CodeLayout::kAwq)
    return part(column_begin / n, (column_end + n - 1) / n, w.in / n);
  if (w.layout == CodeLayout::kNibbles) {
    const auto in = static_cast<std::uint64_t>(w.in);
    return {static_cast<std::uint64_t>(row_begin) * in / 2, (static_cast<std::uint64_t>(row_end) * in + 1) / 2};
  }
  return part(row_begin, row_end, w.out);
}

class QuantizedFile final : public TensorFile {
 public:
  QuantizedFile(std::unique_ptr<MappedTensors> file, const QuantizationConfig& config)
      : file_(std::move(file)), found_(find_quantized_weights(*file_, config)) {
    for (const TensorInfo& info : file_->tensors()) {
      if (!found_.taken.contains(info.name)) infos_.push_back(info);
    }
    for (const auto& [name, weight] : found_.weights) {
      std::vector<std::int64_t> shape = {weight.out, weight.in};
      if (weight.experts > 0) shape = {weight.experts, weight.in, weight.out};
      infos_.push_back({name, std::move(shape), StorageType::kF32, weight.codes.info->num_bytes});
    }
    std::sort(infos_.begin(), infos_.end(), [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < infos_.size(); ++i) {
      MAGISTER_CHECK(infos_[i].name != infos_[i - 1].name, ExitCode::kData,
                     "tensor {} is there both quantised and as numbers "
                     "(it is ambiguous); fetch the file again",
                     printable(infos_[i].name));
    }
  }

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const Metadata& metadata() const override { return file_->metadata(); }
  const std::vector<std::string>& paths() const override { return file_->paths(); }
  bool dequantizes() const override { return true; }

  std::optional<CodeFormat> code_format(const std::string& name) const override {
    const auto found = found_.weights.find(name);
    if (found == found_.weights.end()) return std::nullopt;
    populate_scales(found->second);
    return code_format_of(found->second);
  }

  void read_codes(const std::string& name, IndexRange rows, IndexRange columns, const CodeWindow& out) const override {
    const QuantizedWeight& weight = found_.weights.at(name);
    MAGISTER_CHECK(rows.begin <= rows.end && columns.begin <= columns.end &&
                       rows.end <= static_cast<std::uint64_t>(weight.out) &&
                       columns.end <= static_cast<std::uint64_t>(weight.in),
                   ExitCode::kInternal, "codes [{}, {}) x [{}, {}) of tensor {} (it has none there); report this",
                   rows.begin, rows.end, columns.begin, columns.end, printable(name));
    if (rows.size() == 0 || columns.size() == 0) return;
    const IndexRange bytes = touched(weight, static_cast<std::int64_t>(rows.begin), static_cast<std::int64_t>(rows.end),
                                     static_cast<std::int64_t>(columns.begin), static_cast<std::int64_t>(columns.end));
    file_->populate(*weight.codes.info, bytes);
    populate_scales(weight);
    read_code_window(weight, rows, columns, out);
    // Words along the outputs also hold rows that are read later: they stay mapped in memory until the last row.
    const bool by_input = weight.layout == CodeLayout::kWordsByInput || weight.layout == CodeLayout::kAwq;
    if (!by_input || rows.end == static_cast<std::uint64_t>(weight.out)) file_->forget(*weight.codes.info, bytes);
  }

  void read(const std::string& name, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
            std::int64_t column_end, at::Tensor out) const override {
    const auto found = found_.weights.find(name);
    if (found == found_.weights.end()) {
      MAGISTER_CHECK(!found_.taken.contains(name), ExitCode::kInternal,
                     "tensor {} is a part of a quantised weight (it has no "
                     "numbers of its own); report this",
                     printable(name));
      return file_->read(name, row_begin, row_end, column_begin, column_end, std::move(out));
    }
    const QuantizedWeight& weight = found->second;
    if (weight.experts > 0) return read_experts(name, weight, {row_begin, row_end, column_begin, column_end}, out);
    check_window(name, weight.out, weight.in, {row_begin, row_end, column_begin, column_end}, out);
    if (row_begin == row_end || column_begin == column_end) return;
    file_->populate(*weight.codes.info, touched(weight, row_begin, row_end, column_begin, column_end));
    populate_scales(weight);
    std::vector<float> tile(static_cast<std::size_t>(kTileRows * kTileColumns));
    const auto* values = reinterpret_cast<const std::byte*>(tile.data());
    const auto element = static_cast<std::int64_t>(out.element_size());
    for (std::int64_t row = row_begin; row < row_end; row += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, row_end - row);
      for (std::int64_t column = column_begin; column < column_end; column += kTileColumns) {
        const std::int64_t columns = std::min(kTileColumns, column_end - column);
        dequantize_window(weight, row, row + rows, column, column + columns, tile.data(), kTileColumns);
        for (std::int64_t r = 0; r < rows; ++r) {
          auto* to = static_cast<std::byte*>(out.data_ptr()) +
                     ((row - row_begin + r) * out.stride(0) + column - column_begin) * element;
          convert_row(StorageType::kF32, values + r * kTileColumns * 4, 0, columns, float_type(out), to);
        }
      }
    }
    file_->forget(*weight.codes.info, touched(weight, row_begin, row_end, column_begin, column_end));
  }

 private:
  // Reads from [experts, in, out], seen as [experts * in, out].
  void read_experts(const std::string& name, const QuantizedWeight& weight, const TensorWindow& window,
                    const at::Tensor& out) const {
    check_window(name, weight.experts * weight.in, weight.out, window, out);
    if (window.row_begin == window.row_end || window.column_begin == window.column_end) return;
    const std::int64_t first = window.row_begin / weight.in, last = (window.row_end - 1) / weight.in;
    for (std::int64_t expert = first; expert <= last; ++expert) {
      const TensorWindow part{std::max(window.row_begin - expert * weight.in, std::int64_t{0}),
                              std::min(window.row_end - expert * weight.in, weight.in), window.column_begin,
                              window.column_end};
      read_expert(weight, expert, part,
                  out.narrow(0, expert * weight.in + part.row_begin - window.row_begin, part.row_end - part.row_begin));
    }
  }

  void read_expert(const QuantizedWeight& weight, std::int64_t expert, const TensorWindow& window,
                   const at::Tensor& out) const {
    // Reads whole outputs, although some of their inputs may not be needed.
    const auto outputs = [&](const StoredPart& part) {
      const std::uint64_t bytes = part.info->num_bytes / static_cast<std::uint64_t>(weight.experts * weight.out);
      return IndexRange{static_cast<std::uint64_t>(expert * weight.out + window.column_begin) * bytes,
                        static_cast<std::uint64_t>(expert * weight.out + window.column_end) * bytes};
    };
    for (const StoredPart* part : {&weight.codes, &weight.scales}) file_->populate(*part->info, outputs(*part));
    std::vector<float> tile(static_cast<std::size_t>(kExpertRows * kTileRows));
    const auto* values = reinterpret_cast<const std::byte*>(tile.data());
    const auto element = static_cast<std::int64_t>(out.element_size());
    for (std::int64_t column = window.column_begin; column < window.column_end; column += kTileRows) {
      const std::int64_t columns = std::min(kTileRows, window.column_end - column);
      for (std::int64_t row = window.row_begin; row < window.row_end; row += kExpertRows) {
        const std::int64_t rows = std::min(kExpertRows, window.row_end - row);
        dequantize_expert(weight, expert, row, row + rows, column, column + columns, tile.data(), kTileRows);
        for (std::int64_t r = 0; r < rows; ++r) {
          auto* to = static_cast<std::byte*>(out.data_ptr()) +
                     ((row - window.row_begin + r) * out.stride(0) + column - window.column_begin) * element;
          convert_row(StorageType::kF32, values + r * kTileRows * 4, 0, columns, float_type(out), to);
        }
      }
    }
    for (const StoredPart* part : {&weight.codes, &weight.scales}) file_->forget(*part->info, outputs(*part));
  }

  void populate_scales(const QuantizedWeight& weight) const {
    for (const StoredPart* part : {&weight.scales, &weight.zeros, &weight.group_index, &weight.absmax,
                                   &weight.nested_absmax, &weight.nested_table}) {
      if (*part) file_->populate(*part->info, {0, part->info->num_bytes});
    }
  }

  std::unique_ptr<MappedTensors> file_;
  QuantizedWeights found_;
  std::vector<TensorInfo> infos_;
};

}  // namespace

std::unique_ptr<TensorFile> open_quantized(std::unique_ptr<MappedTensors> file, const QuantizationConfig& config) {
  return std::make_unique<QuantizedFile>(std::move(file), config);
}

}  // namespace magister
