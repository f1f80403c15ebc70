// The factors of an adapter, adapter_model.safetensors: mapped, and read by windows of the weights that they change.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "io/checkpoint/lora_experts.h"
#include "io/checkpoint/mapped_tensors.h"

namespace magister {

// The factors of a window [N, K] of a weight, whose change is scale * b_NR a_RK. f32, contiguous.
struct LoraWindow {
  at::Tensor b_NR, a_RK;
};

class LoraFactors {
 public:
  // Throws Error(kInputOutput) if the file does not exist, and Error(kData) for a pickle in its place. Local.
  explicit LoraFactors(const std::string& adapter_folder);

  const TensorFile& file() const { return *file_; }
  // window: rows and columns within the weight of one expert, or of a plain layer (expert 0). Thread-safe.
  LoraWindow window(const LoraChange& change, std::int64_t expert, const TensorWindow& window) const;

 private:
  void read_outputs(const LoraChange& change, std::int64_t expert, IndexRange outputs, at::Tensor out_OR) const;
  std::shared_ptr<const at::Tensor> stacked(const std::string& name, const LoraChange& change) const;

  std::unique_ptr<MappedTensors> file_;
  mutable std::mutex mutex_;
  mutable std::deque<std::pair<std::string, std::shared_ptr<const at::Tensor>>> stacked_;  // see stacked()
};

}  // namespace magister
