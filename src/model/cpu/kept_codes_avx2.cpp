// Reads the codes of a block row by row and packs them into words of one output each. The file's name makes the build
// use -O3.
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/model/cpu/panel_memory.h"
#include "magister/parallel/thread_pool.h"
#include "model/cpu/code_words.h"
#include "model/cpu/kept_codes.h"

namespace magister {
namespace {

constexpr std::int64_t kPanel = Linear::kPanel;

bool finite(std::uint16_t bits, bool half) { return half ? (bits & 0x7C00u) != 0x7C00u : (bits & 0x7F80u) != 0x7F80u; }

// Destination of a weight, and the layout of its codes.
struct Target {
  std::uint32_t* words;
  std::uint16_t* scales;
  std::uint16_t* offsets;                  // nullptr: the format has none
  std::int64_t panel_words, panel_groups;  // strides of a panel
  std::int64_t num_words, num_groups;      // per output
  std::int64_t first;                      // position of row 0 in its word
  std::int64_t bits;
  bool half_scales;
};

// Codes of one block, as rows of whole words, with the scales and offsets of their groups.
struct BlockRows {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint16_t> scales, offsets;
  std::int64_t stride;
};

void check_finite(const BlockRows& read, const RowBlock& block, bool half_scales) {
  const bool good =
      std::all_of(read.scales.begin(), read.scales.end(), [&](std::uint16_t b) { return finite(b, half_scales); }) &&
      std::all_of(read.offsets.begin(), read.offsets.end(), [](std::uint16_t b) { return finite(b, true); });
  MAGISTER_CHECK(good, ExitCode::kData,
                 "tensor {} has a scale or a minimum that is not finite in rows {} to {} (its weights "
                 "would not be finite either); fetch the model again",
                 printable(block.tensor), block.rows.begin, block.rows.end);
}

void place_block(const BlockRows& read, const RowBlock& block, const Target& to) {
  const auto count = static_cast<std::int64_t>(block.rows.size());
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t output = block.output + (block.as_halves ? row / 2 + row % 2 * (count / 2) : row);
    const std::int64_t panel = output / kPanel, column = output % kPanel;
    place_words(read.codes.data() + row * read.stride, to.bits, to.num_words,
                to.words + panel * to.panel_words + column);
    for (std::int64_t g = 0; g < to.num_groups; ++g) {
      const std::int64_t at = panel * to.panel_groups + g * kPanel + column;
      to.scales[at] = read.scales[static_cast<std::size_t>(row * to.num_groups + g)];
      if (to.offsets != nullptr) to.offsets[at] = read.offsets[static_cast<std::size_t>(row * to.num_groups + g)];
    }
  }
}

}  // namespace

std::optional<CodeFormat> common_code_format(const TensorFile& file, const std::vector<std::string>& tensors) {
  std::optional<CodeFormat> common;
  for (const std::string& name : tensors) {
    const std::optional<CodeFormat> format = file.code_format(name);
    if (!format || (common && *common != *format)) return std::nullopt;
    common = format;
  }
  return common;
}

std::vector<RowBlock> divided(const std::vector<RowBlock>& blocks, std::int64_t most_rows) {
  std::vector<RowBlock> parts;
  for (const RowBlock& block : blocks) {
    const std::uint64_t step = block.as_halves ? block.rows.size() : static_cast<std::uint64_t>(most_rows) * block.step;
    for (std::uint64_t begin = block.rows.begin; begin < block.rows.end; begin += step) {
      RowBlock part = block;
      part.output += static_cast<std::int64_t>((begin - block.rows.begin) / block.step);
      part.rows = {begin, std::min(begin + step, block.rows.end)};
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

Linear keep_codes(const TensorFile& file, const std::vector<RowBlock>& blocks, std::int64_t N, const CodeFormat& format,
                  const QuantScheme& scheme, IndexRange columns, ThreadPool* pool) {
  MAGISTER_ASSERT(scheme.keeps(format));
  const std::int64_t panels = (N + kPanel - 1) / kPanel;
  const bool half = format.scale == CodeFormat::Scale::kF16, offsets = format.offset != CodeFormat::Offset::kMiddle;
  Linear out;
  out.num_outputs = N;
  out.scheme = scheme.of(format);
  out.offset = format.offset;
  out.num_inputs = static_cast<std::int64_t>(columns.size());
  out.lead = out.scheme.lead(columns.begin);
  const std::int64_t words = out.scheme.words(columns), groups = out.scheme.scales(columns);
  out.panels_PKW = empty_panels({panels, words, kPanel}, at::kInt);
  out.scales_PGW = empty_panels({panels, groups, kPanel}, half ? at::kHalf : at::kBFloat16);
  if (offsets) out.offsets_PGW = empty_panels({panels, groups, kPanel}, at::kHalf);
  // The padding outputs after N are zero.
  for (at::Tensor* tensor : {&out.panels_PKW, &out.scales_PGW, &out.offsets_PGW}) {
    if (tensor->defined() && panels > 0) tensor->select(0, panels - 1).zero_();
  }
  const Target to{reinterpret_cast<std::uint32_t*>(out.panels_PKW.data_ptr<std::int32_t>()),
                  static_cast<std::uint16_t*>(out.scales_PGW.data_ptr()),
                  offsets ? static_cast<std::uint16_t*>(out.offsets_PGW.data_ptr()) : nullptr,
                  words * kPanel,
                  groups * kPanel,
                  words,
                  groups,
                  out.lead % 8,
                  format.bits,
                  half};
  const std::vector<RowBlock> parts = divided(blocks, 64);  // keeps the buffers small
  on_threads(pool, static_cast<std::int64_t>(parts.size()), [&](std::int64_t index) {
    const RowBlock& block = parts[static_cast<std::size_t>(index)];
    const std::size_t rows = block.rows.size(), stride = static_cast<std::size_t>(words * 32 / format.bits);
    BlockRows read{std::vector<std::uint8_t>(rows * stride),
                   std::vector<std::uint16_t>(rows * static_cast<std::size_t>(groups)),
                   std::vector<std::uint16_t>(offsets ? rows * static_cast<std::size_t>(groups) : 0),
                   static_cast<std::int64_t>(stride)};
    file.read_codes(block.tensor, block.rows, columns,
                    {read.codes.data() + to.first, read.stride, read.scales.data(),
                     offsets ? read.offsets.data() : nullptr, groups});
    check_finite(read, block, half);
    place_block(read, block, to);
  });
  return out;
}

}  // namespace magister
