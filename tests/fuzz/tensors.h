// Reads a tensor file as a run does: values of the first and last rows, and codes if kernels could keep them.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister::fuzz {

inline void read_tensors(const TensorFile& file) {
  constexpr std::int64_t kMaxElements = 1 << 16;
  for (const TensorInfo& info : file.tensors()) {
    const std::int64_t columns = info.shape.empty() ? 1 : info.shape.back();
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < info.shape.size(); ++i) rows *= info.shape[i];
    if (rows == 0 || columns == 0 || columns > kMaxElements) continue;
    const std::int64_t count = std::min(rows, kMaxElements / columns);
    const at::Tensor values = at::empty({count, columns}, at::kFloat);
    file.read(info.name, rows - count, rows, 0, columns, values);
    const std::optional<CodeFormat> format = file.code_format(info.name);
    if (!format) continue;
    const std::int64_t groups = format->group == 0 ? 1 : (columns + format->group - 1) / format->group;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(count * columns));
    std::vector<std::uint16_t> scales(static_cast<std::size_t>(count * groups)), offsets(scales.size());
    file.read_codes(info.name, {static_cast<std::uint64_t>(rows - count), static_cast<std::uint64_t>(rows)},
                    {0, static_cast<std::uint64_t>(columns)},
                    {codes.data(), columns, scales.data(),
                     format->offset == CodeFormat::Offset::kMiddle ? nullptr : offsets.data(), groups});
  }
}

}  // namespace magister::fuzz
