// See lora_factors.h.
#include "io/checkpoint/lora_factors.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "magister/core/error.h"
#include "magister/io/checkpoint/lora_adapter.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kKept = 4;  // of two layers

std::unique_ptr<MappedTensors> open_factors(const std::string& folder) {
  std::error_code error;
  const fs::path path = lora_paths(folder).back(), pickle = fs::path(folder) / "adapter_model.bin";
  MAGISTER_CHECK(fs::exists(path, error) || !fs::exists(pickle, error), ExitCode::kData,
                 "{}: is a pickle (reading it would run what it says); save the adapter again with PEFT, which writes "
                 "adapter_model.safetensors",
                 printable(pickle.string()));
  MAGISTER_CHECK(fs::is_regular_file(path, error), ExitCode::kInputOutput,
                 "{}: there is no such file (it holds the adapter's weights); fetch the adapter again",
                 printable(path.string()));
  return open_safetensors(path.string());
}

}  // namespace

LoraFactors::LoraFactors(const std::string& adapter_folder) : file_(open_factors(adapter_folder)) {}

LoraWindow LoraFactors::window(const LoraChange& change, std::int64_t expert, const TensorWindow& window) const {
  const std::int64_t R = change.rank, N = window.row_end - window.row_begin,
                     K = window.column_end - window.column_begin;
  LoraWindow out{at::empty({N, R}, at::kFloat), at::empty({R, K}, at::kFloat)};
  const std::string a = lora_tensor_name(change.layer, 'A');
  const auto range = [](std::int64_t begin, std::int64_t end) {
    return IndexRange{static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)};
  };
  if (!change.inputs_first) {
    file_->read(a, expert * R, (expert + 1) * R, window.column_begin, window.column_end, out.a_RK);
    read_outputs(change, expert, range(window.row_begin, window.row_end), out.b_NR);
    return out;
  }
  // The same sums with the factors exchanged.
  at::Tensor b_KR = at::empty({K, R}, at::kFloat), a_RN = at::empty({R, N}, at::kFloat);
  read_outputs(change, expert, range(window.column_begin, window.column_end), b_KR);
  file_->read(a, expert * R, (expert + 1) * R, window.row_begin, window.row_end, a_RN);
  out.a_RK.copy_(b_KR.t());
  out.b_NR.copy_(a_RN.t());
  return out;
}

void LoraFactors::read_outputs(const LoraChange& change, std::int64_t expert, IndexRange outputs,
                               at::Tensor out_OR) const {
  const std::string b = lora_tensor_name(change.layer, 'B');
  const std::int64_t begin = change.first_output + static_cast<std::int64_t>(outputs.begin),
                     end = change.first_output + static_cast<std::int64_t>(outputs.end);
  if (change.experts == 1) return file_->read(b, begin, end, 0, change.rank, std::move(out_OR));
  out_OR.copy_(stacked(b, change)->select(0, expert).slice(0, begin, end));
}

// B of all experts, [experts, outputs, rank]. The file has the columns of an expert far apart, so the factors of the
// layers that are being loaded are kept.
std::shared_ptr<const at::Tensor> LoraFactors::stacked(const std::string& name, const LoraChange& change) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [kept, factor] : stacked_) {
    if (kept == name) return factor;
  }
  const std::int64_t O = file_->find(name)->shape[0];
  at::Tensor all_OC = at::empty({O, change.rank * change.experts}, at::kFloat);
  file_->read(name, 0, O, 0, all_OC.size(1), all_OC);
  auto factor =
      std::make_shared<const at::Tensor>(all_OC.view({O, change.rank, change.experts}).permute({2, 0, 1}).contiguous());
  if (stacked_.size() == kKept) stacked_.pop_front();
  stacked_.emplace_back(name, factor);
  return factor;
}

}  // namespace magister
