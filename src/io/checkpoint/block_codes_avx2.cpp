// Codes of ggml's blocks of 32: f16 scale, in Q4_1 an f16 minimum, then 32 signed bytes (Q8_0) or 16 pairs of nibbles
// whose low halves are the first 16 elements. Compiled at -O3 (because of the file's name), since every weight of a
// model passes through this code. Source: ggml's block_q8_0, block_q4_0, block_q4_1.
#include <algorithm>
#include <cstring>

#include "io/checkpoint/mapped_tensors.h"
#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::uint64_t kBlock = 32;

std::uint16_t bits_at(const std::byte* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

void expand_block(StorageType type, const std::byte* block, std::uint8_t* __restrict codes) {
  if (type == StorageType::kQ8_0) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(block + 2);
    for (std::uint64_t i = 0; i < kBlock; ++i) codes[i] = static_cast<std::uint8_t>(bytes[i] ^ 0x80u);  // + 128
    return;
  }
  const auto* pairs = reinterpret_cast<const unsigned char*>(block + (type == StorageType::kQ4_1 ? 4 : 2));
  for (std::uint64_t i = 0; i < 16; ++i) codes[i] = pairs[i] & 15;
  for (std::uint64_t i = 0; i < 16; ++i) codes[i + 16] = pairs[i] >> 4;
}

// Reads one row of blocks: the codes of `columns`, and the scales and minima of their groups.
void read_row(StorageType type, std::uint64_t block_bytes, const std::byte* row, IndexRange columns,
              std::uint8_t* codes, std::uint16_t* scales, std::uint16_t* minima) {
  std::uint8_t expanded[kBlock];
  for (std::uint64_t at = columns.begin; at < columns.end;) {
    const std::byte* const block = row + at / kBlock * block_bytes;
    const std::uint64_t inside = at % kBlock, count = std::min(kBlock - inside, columns.end - at);
    *scales++ = bits_at(block);
    if (type == StorageType::kQ4_1) *minima++ = bits_at(block + 2);
    if (count == kBlock) {
      expand_block(type, block, codes);
    } else {
      expand_block(type, block, expanded);
      std::copy_n(expanded + inside, count, codes);
    }
    codes += count;
    at += count;
  }
}

}  // namespace

std::optional<CodeFormat> MappedTensors::code_format(const std::string& name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr || info->shape.size() < 2) return std::nullopt;
  switch (info->type) {
    case StorageType::kQ8_0:
      return CodeFormat{8, kBlock, CodeFormat::Scale::kF16, CodeFormat::Offset::kMiddle};
    case StorageType::kQ4_0:
      return CodeFormat{4, kBlock, CodeFormat::Scale::kF16, CodeFormat::Offset::kMiddle};
    case StorageType::kQ4_1:
      return CodeFormat{4, kBlock, CodeFormat::Scale::kF16, CodeFormat::Offset::kMinimum};
    default:
      return std::nullopt;
  }
}

void MappedTensors::read_codes(const std::string& name, IndexRange rows, IndexRange columns,
                               const CodeWindow& out) const {
  const TensorInfo* info = find(name);
  std::uint64_t all_rows = 1, all_columns = 0;  // stacked experts: the rows of all of them
  if (info != nullptr) {
    for (std::size_t i = 0; i + 1 < info->shape.size(); ++i) all_rows *= static_cast<std::uint64_t>(info->shape[i]);
    all_columns = static_cast<std::uint64_t>(info->shape.back());
  }
  MAGISTER_CHECK(info != nullptr && code_format(name).has_value() && rows.begin <= rows.end &&
                     columns.begin <= columns.end && rows.end <= all_rows && columns.end <= all_columns,
                 ExitCode::kInternal, "codes [{}, {}) x [{}, {}) of tensor {} (it has none there); report this",
                 rows.begin, rows.end, columns.begin, columns.end, printable(name));
  if (rows.size() == 0 || columns.size() == 0) return;
  const auto block_bytes = static_cast<std::uint64_t>(layout_of(info->type).block_bytes);
  const std::uint64_t row_bytes = all_columns / kBlock * block_bytes;
  const std::byte* const base = bytes_of(*info).data();
  // Whole rows are read from the disk: a shard's columns of a row lie within a few pages.
  const IndexRange touched{rows.begin * row_bytes, rows.end * row_bytes};
  populate(*info, touched);
  for (std::uint64_t row = rows.begin; row < rows.end; ++row) {
    const auto at = static_cast<std::int64_t>(row - rows.begin);
    read_row(info->type, block_bytes, base + row * row_bytes, columns, out.codes + at * out.codes_stride,
             out.scales + at * out.groups_stride,
             out.offsets == nullptr ? nullptr : out.offsets + at * out.groups_stride);
  }
  forget(*info, touched);
}

}  // namespace magister
