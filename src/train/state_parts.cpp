// See state_parts.h.
#include "train/state_parts.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <charconv>
#include <map>

#include "magister/core/sha256.h"

namespace magister {
namespace fs = std::filesystem;

std::optional<std::uint64_t> state_number(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> state_step(const fs::path& path) {
  const std::string stem = path.stem().string();
  if (path.extension() != ".safetensors" || !stem.starts_with("step-")) return std::nullopt;
  return state_number(stem.substr(5));
}

std::vector<fs::path> states_in(const std::string& folder) {
  std::multimap<std::uint64_t, fs::path> by_step;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (const std::optional<std::uint64_t> step = state_step(entry.path())) by_step.emplace(*step, entry.path());
  }
  std::vector<fs::path> states;
  states.reserve(by_step.size());
  for (const auto& [step, path] : by_step) states.push_back(path);
  return states;
}

void add_parameters(std::vector<NamedTensor>& tensors, const char* prefix, const FlatLayout& layout,
                    const at::Tensor& flat) {
  for (std::size_t i = 0; i < layout.all().size(); ++i)
    tensors.push_back({prefix + layout.all()[i].name, layout.view(flat, i)});
}

void add_one_by_one(std::vector<NamedTensor>& tensors, const char* prefix, const FlatLayout& layout,
                    const std::function<at::Tensor(const NamedTensor&, const FlatRange&)>& read) {
  for (const TrainParameter& parameter : layout.all()) {
    NamedTensor& tensor = tensors.emplace_back(NamedTensor{prefix + parameter.name, at::Tensor(), parameter.shape});
    const FlatRange range{parameter.offset, parameter.offset + parameter.count};
    tensor.read = [read, range, of = NamedTensor{tensor.name, {}, tensor.shape}] { return read(of, range); };
  }
}

void add_curves(std::vector<NamedTensor>& tensors, TrainingCurves& curves) {
  const auto length = static_cast<std::int64_t>(curves.step);
  tensors.push_back({"train.loss", at::from_blob(curves.loss.data(), {length}, at::kFloat)});
  tensors.push_back({"train.grad_norm", at::from_blob(curves.grad_norm.data(), {length}, at::kFloat)});
  if (!curves.rewards.empty())
    tensors.push_back({"train.rewards",
                       at::from_blob(curves.rewards.data(),
                                     {length, static_cast<std::int64_t>(curves.rewards.size()) / length}, at::kFloat)});
  if (!curves.evaluations.empty()) {
    const auto count = static_cast<std::int64_t>(curves.evaluations.size());
    tensors.push_back({"train.evaluations", at::from_blob(curves.evaluations.data(), {count}, at::kFloat)});
  }
}

std::string state_sha256(const std::vector<NamedTensor>& tensors, std::uint64_t step, std::uint64_t updates,
                         const BetweenBlocks& between) {
  return sha256_hex(fmt::format("{} {} {}\n", tensors_sha256(tensors, between), step, updates));
}

}  // namespace magister
