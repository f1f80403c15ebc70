// The common part of all tensor files once the header is read: a sorted list of tensors, each with its place in a
// mapping.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/dequantize.h"
#include "io/checkpoint/mapped_file.h"
#include "magister/core/types.h"
#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

// Limits for headers, far above every known model (a mixture of 384 experts has 140,000 tensors): a bad file is refused
// within a second and 256 MB of memory.
constexpr std::size_t kMaxTensors = 1 << 18;  // in one file
constexpr std::size_t kMaxTensorNameBytes = 512;

class MappedTensors : public TensorFile {
 public:
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const Metadata& metadata() const override { return metadata_; }
  const std::vector<std::string>& paths() const override { return paths_; }
  void read(const std::string& name, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
            std::int64_t column_end, at::Tensor out) const override;
  // For ggml's Q8_0, Q4_0 and Q4_1; implemented in src/io/checkpoint/block_codes_avx2.cpp.
  std::optional<CodeFormat> code_format(const std::string& name) const override;
  void read_codes(const std::string& name, IndexRange rows, IndexRange columns, const CodeWindow& out) const override;
  // The stored bytes of a tensor of tensors(), for callers with their own format: call populate() before touching bytes
  // and forget() afterwards, which throws if the file was written to meanwhile.
  std::span<const std::byte> bytes_of(const TensorInfo& info) const;
  void populate(const TensorInfo& info, IndexRange bytes) const;
  void forget(const TensorInfo& info, IndexRange bytes) const;
  // The path of the file that holds a tensor of tensors().
  const std::string& path_of(const TensorInfo& info) const;

 protected:
  // Adds a file; the returned index is for add_tensor.
  std::size_t add_file(MappedFile file);
  const MappedFile& file(std::size_t index) const { return files_[index]; }
  // Checks shape, type and place against the file: sizes that overflow or reach beyond the file are refused.
  void add_tensor(TensorInfo info, std::size_t file_index, std::uint64_t offset);
  void finish();  // sorts; a repeated name is refused
  Metadata metadata_;

 private:
  struct Place {
    std::size_t file_index = 0;
    std::uint64_t offset = 0;
  };
  std::vector<MappedFile> files_;
  std::vector<std::string> paths_;
  std::vector<TensorInfo> infos_;
  std::vector<Place> places_;  // place of the tensor with the same index in infos_
};

// Bytes of a tensor of this shape and type, every product checked. Error(kData) if the last dimension is not a whole
// number of blocks or a dimension is negative.
std::uint64_t tensor_bytes(const TensorInfo& info, const std::string& path);

// The two readers; each has its own source file.
std::unique_ptr<TensorFile> open_gguf(const std::string& path);
std::unique_ptr<MappedTensors> open_safetensors(const std::string& path);  // a file, or a folder

// A window of a tensor seen as [rows, columns].
struct TensorWindow {
  std::int64_t row_begin, row_end, column_begin, column_end;
};
// Error(kInternal) if the window leaves the tensor, or if `out` has another shape or a type that is not supported.
void check_window(const std::string& name, std::int64_t rows, std::int64_t columns, const TensorWindow& window,
                  const at::Tensor& out);
FloatType float_type(const at::Tensor& out);

}  // namespace magister
