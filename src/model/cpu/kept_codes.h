// Makes a packed weight out of the codes of a file, without changing the codes.
// Shapes: N outputs of a fused weight, which consists of row blocks of one or more tensors; K inputs of this shard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/cpu/matmul.h"

namespace magister {

class ThreadPool;

// Rows of a tensor in the file that become outputs [output, output + outputs()) of a fused weight.
struct RowBlock {
  std::string tensor;
  IndexRange rows;
  std::int64_t output = 0;
  // The rows of one head, which the file holds as rotary pairs (GGUF's Llama): even ones become the first half, odd
  // ones the second.
  bool as_halves = false;
  bool transposed = false;        // the file holds [in, out]: `rows` are its columns
  std::uint64_t first_input = 0;  // transposed: the row of input 0
  std::uint64_t step = 1;         // transposed: distance between two rows of the block
  std::int64_t outputs() const { return static_cast<std::int64_t>((rows.size() + step - 1) / step); }
};

// Splits the blocks into parts of at most most_rows rows, for threads to share. A block with as_halves stays whole.
std::vector<RowBlock> divided(const std::vector<RowBlock>& blocks, std::int64_t most_rows);

// The format that all these tensors share, or nothing: the fused weight can then not keep their codes.
std::optional<CodeFormat> common_code_format(const TensorFile& file, const std::vector<std::string>& tensors);

// Requires scheme.keeps(format). The blocks cover N outputs. Keeps `columns` of the whole tensors; they may begin
// inside a group. A pool's threads share the blocks. Throws Error(kData) if a scale or an offset is not finite.
Linear keep_codes(const TensorFile& file, const std::vector<RowBlock>& blocks, std::int64_t N, const CodeFormat& format,
                  const QuantScheme& scheme, IndexRange columns, ThreadPool* pool);

}  // namespace magister
