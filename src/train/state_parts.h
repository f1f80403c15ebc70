// The parts of a training state on disk, for who writes and who reads it. Names of tensors: model.<tensor>,
// exp_avg.<tensor> and exp_avg_sq.<tensor> (torch's AdamW calls its moments so), train.loss, train.grad_norm,
// train.rewards, train.evaluations.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/checkpoint/safetensors_writer.h"
#include "magister/train/checkpoint.h"
#include "magister/train/flat_shards.h"
#include "magister/train/parameters.h"

namespace magister {

inline constexpr const char* kStateFormat = "magister.train.state";
inline constexpr std::uint64_t kStateVersion = 1;

// A whole number that is all of the text.
std::optional<std::uint64_t> state_number(const std::string& text);
// The step number in the name of a state; nothing for other files.
std::optional<std::uint64_t> state_step(const std::filesystem::path& path);
// The states in a folder, the oldest first. Local.
std::vector<std::filesystem::path> states_in(const std::string& folder);

// Add a tensor for every parameter of the layout. flat: on the host, f32 [layout.flat_size()].
void add_parameters(std::vector<NamedTensor>& tensors, const char* prefix, const FlatLayout& layout,
                    const at::Tensor& flat);
// For numbers that this rank may hold only in part, or not on the host: one parameter at a time is whole on the host,
// while it is hashed, written or read.
void add_one_by_one(std::vector<NamedTensor>& tensors, const char* prefix, const FlatLayout& layout,
                    const std::function<at::Tensor(const NamedTensor&, const FlatRange&)>& read);
// The tensors refer to the curves.
void add_curves(std::vector<NamedTensor>& tensors, TrainingCurves& curves);

std::string state_sha256(const std::vector<NamedTensor>& tensors, std::uint64_t step, std::uint64_t updates,
                         const BetweenBlocks& between = {});

}  // namespace magister
