// Codes of a file -> a packed weight that multiplies by them as they are.
// Shapes: N outputs of a fused weight, made of blocks of rows of one or more tensors; K inputs of this shard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/cpu/matmul.h"

namespace magister {

class ThreadPool;

// Rows of a tensor of the file that become outputs [output, output + outputs()) of a fused weight.
struct RowBlock {
  std::string tensor;
  IndexRange rows;
  std::int64_t output = 0;
  bool as_halves =
      false;  // one head's rows, in the file as rotary pairs (GGUF's Llama): even ones first, then odd ones
  bool transposed = false;        // the file holds [in, out]: `rows` are its columns
  std::uint64_t first_input = 0;  // transposed: the row of input 0
  std::uint64_t step = 1;         // from a row to the next one that is meant (of a transposed block)
  std::int64_t outputs() const { return static_cast<std::int64_t>((rows.size() + step - 1) / step); }
};

// The same blocks in parts of at most so many rows, for threads to share; a head of pairs stays whole.
std::vector<RowBlock> divided(const std::vector<RowBlock>& blocks, std::int64_t most_rows);

// The format that all these tensors have in common, or nothing: then the fused weight cannot keep their codes.
std::optional<CodeFormat> common_code_format(const TensorFile& file, const std::vector<std::string>& tensors);

// scheme.keeps(format). The blocks cover N outputs; `columns` of the whole tensor are kept, wherever a group begins. A pool's
// threads share the blocks. Throws Error(kData) where a scale or an offset is not finite.
Linear keep_codes(const TensorFile& file, const std::vector<RowBlock>& blocks, std::int64_t N, const CodeFormat& format,
                  const QuantScheme& scheme, IndexRange columns, ThreadPool* pool);

}  // namespace magister
