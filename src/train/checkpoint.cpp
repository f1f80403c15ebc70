// Reads training states; state_writer.cpp writes them.
#include "magister/train/checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "magister/core/error.h"
#include "magister/io/agreed_errors.h"
#include "magister/io/checkpoint/safetensors_writer.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/io/results/identity.h"
#include "magister/train/fresh_zeros.h"
#include "train/state_parts.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

// The error for a damaged state: training cannot resume from it, but from the one before it.
class Damaged : public Error {
 public:
  Damaged(const std::string& path, const std::string& problem)
      : Error(
            ExitCode::kData,
            fmt::format("{}: {} (training cannot resume from it); remove this file, and the run resumes from the state "
                        "before it, or starts from the beginning",
                        printable(path), problem)),
        problem_(problem) {}
  const std::string& problem() const { return problem_; }

 private:
  std::string problem_;
};

// Describes the differences. The experiments of earlier builds' states are not known.
std::string state_differences(const std::string& there, const std::string& here) {
  std::vector<std::string> keys;
  try {
    if (!there.empty() && !here.empty()) keys = differing_keys(there, here, {.task_key = ""});
  } catch (const Error&) {  // the metadata were changed
  }
  if (!keys.empty()) return fmt::format("{}", fmt::join(keys, ", "));
  return "model, data or configuration differ from those it was trained with, or an earlier version of this program "
         "began it";
}

// An open state that belongs to this experiment.
class StateFile {
 public:
  StateFile(const std::string& path, const StateIdentity& identity) : path_(path), file_(open(path)) {
    for (auto& [name, text] : safetensors_metadata(path)) texts_.emplace(name, text);
    require(texts_["format"] == kStateFormat, "is not a state of a training");
    const auto version = state_number(texts_["version"]);
    require(version.has_value(), "has no sound metadata");
    MAGISTER_CHECK(
        *version <= kStateVersion, ExitCode::kData,
        "{}: is of a newer version than this program knows (training cannot resume from it); use the program "
        "that wrote it",
        printable(path));
    MAGISTER_CHECK(texts_["identity"] == identity.digest, ExitCode::kConfig,
                   "{}: belongs to another experiment ({}); choose another name, or start over with --fresh",
                   printable(path), state_differences(texts_["experiment"], identity.experiment));
  }

  std::uint64_t number(const char* name) {
    const auto number = state_number(texts_[name]);
    require(number.has_value() && *number < (1ull << 40), "has no sound metadata");
    return *number;
  }
  void read(const NamedTensor& into) {
    const TensorInfo* info = file_->find(into.name);
    require(info != nullptr && info->type == StorageType::kF32 && at::IntArrayRef(info->shape) == into.tensor.sizes(),
            "does not hold what the model asks for");
    const at::Tensor out = as_rows(into.tensor);
    file_->read(into.name, 0, out.size(0), 0, out.size(1), out);
  }
  // Requires as many numbers as the metadata says, before memory is taken for them.
  void require_shape(const char* name, const std::vector<std::int64_t>& shape) const {
    const TensorInfo* info = file_->find(name);
    require(info != nullptr && info->shape == shape, "does not hold what its metadata says");
  }
  // Length of an optional list; 0: this state lacks it. At most `most`.
  std::uint64_t length_of(const char* name, std::uint64_t most) const {
    const TensorInfo* info = file_->find(name);
    if (info == nullptr) return 0;
    require(info->shape.size() == 1 && info->shape[0] > 0 && static_cast<std::uint64_t>(info->shape[0]) <= most,
            "does not hold what its metadata says");
    return static_cast<std::uint64_t>(info->shape[0]);
  }
  // Checks the digest of everything in the file, after it was read.
  void verify(const std::vector<NamedTensor>& all, std::uint64_t step, std::uint64_t updates) {
    require(state_sha256(all, step, updates) == texts_["sha256"],
            "was changed since it was written (its sha256 differs)");
  }
  void require(bool holds, const char* what) const {
    if (!holds) throw Damaged(path_, what);
  }

 private:
  std::unique_ptr<TensorFile> open(const std::string& path) const {
    try {
      return TensorFile::open(path);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) throw;
      require(false, "is cut short or damaged");
      throw;
    }
  }

  std::string path_;
  std::unique_ptr<TensorFile> file_;
  std::map<std::string, std::string> texts_;
};

// Copies from the host to a GPU; empty: plain copies.
CopyNumbers to_device(Trainer& trainer) {
  if (!trainer.trains_on_gpu()) return {};
  return [&trainer](const at::Tensor& from, const at::Tensor& to) { trainer.copies().to_device(from, to); };
}

// trainer: its moments are read too; nullptr: they are only verified.
TrainingCurves load(const std::string& path, const FlatLayout& layout, at::Tensor& weights, Trainer* trainer,
                    const StateIdentity& identity, std::int64_t rewards) {
  StateFile file(path, identity);
  TrainingCurves curves;
  curves.step = file.number("step");
  const std::uint64_t updates = file.number("updates");
  file.require(curves.step > 0 && updates <= curves.step && curves.step < (1ull << 28), "has no sound metadata");
  const auto steps = static_cast<std::int64_t>(curves.step);
  for (const char* const name : {"train.loss", "train.grad_norm"}) file.require_shape(name, {steps});
  if (rewards > 0) file.require_shape("train.rewards", {steps, rewards});
  curves.loss.resize(curves.step);
  curves.grad_norm.resize(curves.step);
  curves.rewards.resize(curves.step * static_cast<std::uint64_t>(rewards));
  curves.evaluations.resize(file.length_of("train.evaluations", 4 * (curves.step + 1)));
  std::vector<NamedTensor> tensors;
  const auto values_of = [&file](const NamedTensor& tensor) {
    const at::Tensor values = at::empty(tensor.shape, at::kFloat);
    file.read({tensor.name, values});
    return values;
  };
  if (trainer != nullptr && trainer->trains_on_gpu()) {
    add_one_by_one(tensors, "model.", layout, [&](const NamedTensor& tensor, const FlatRange& range) {
      const at::Tensor values = values_of(tensor);
      trainer->copies().to_device(values, weights.narrow(0, range.begin, range.size()));
      return values;
    });
  } else {
    add_parameters(tensors, "model.", layout, weights);
  }
  const auto moment = [&](at::Tensor OptimizerState::* of) {
    return [&values_of, trainer, of](const NamedTensor& tensor, const FlatRange& range) {
      const at::Tensor values = values_of(tensor);
      if (trainer != nullptr)
        keep_own(trainer->shards(), trainer->sharing().rank(), values, range, trainer->optimizer().*of,
                 to_device(*trainer));
      return values;
    };
  };
  add_one_by_one(tensors, "exp_avg.", layout, moment(&OptimizerState::mean));
  add_one_by_one(tensors, "exp_avg_sq.", layout, moment(&OptimizerState::square));
  add_curves(tensors, curves);
  for (const NamedTensor& tensor : tensors) {
    if (!tensor.read) file.read(tensor);
  }
  file.verify(tensors, curves.step, updates);
  if (trainer != nullptr) trainer->optimizer().updates = updates;
  return curves;
}

}  // namespace

std::uint64_t TrainingCurves::skipped_in_a_row() const {
  std::uint64_t count = 0;
  while (count < step && !(std::isfinite(loss[step - 1 - count]) && std::isfinite(grad_norm[step - 1 - count])))
    ++count;
  return count;
}

std::uint64_t TrainingCurves::skipped() const {
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < step; ++i) count += std::isfinite(loss[i]) && std::isfinite(grad_norm[i]) ? 0 : 1;
  return count;
}

std::optional<std::string> newest_training_state(const std::string& folder) {
  const std::vector<fs::path> states = states_in(folder);
  return states.empty() ? std::nullopt : std::optional(states.back().string());
}

std::optional<SavedStep> newest_saved_step(const std::string& folder) {
  const std::vector<fs::path> states = states_in(folder);
  for (auto path = states.rbegin(); path != states.rend(); ++path) {
    try {
      const auto step = static_cast<std::int64_t>(*state_step(*path));
      const std::unique_ptr<TensorFile> file = TensorFile::open(path->string());
      const TensorInfo* const loss = file->find("train.loss");
      if (step == 0 || loss == nullptr || loss->shape != std::vector<std::int64_t>{step}) continue;
      const at::Tensor last = at::empty({1, 1}, at::kFloat);
      file->read("train.loss", 0, 1, step - 1, step, last);
      return SavedStep{static_cast<std::uint64_t>(step), last.item<float>()};
    } catch (const Error&) {  // truncated, or being written: use the one before it
    }
  }
  return std::nullopt;
}

LoadedState load_training_state(const std::string& folder, Trainer& trainer, const StateIdentity& identity,
                                std::int64_t rewards) {
  const Communicator& world = trainer.world();
  LoadedState loaded;
  std::vector<fs::path> states;
  if (world.rank() == 0) states = states_in(folder);
  std::uint64_t left = states.size();
  for (world.broadcast(&left, sizeof left, 0); left > 0; --left) {
    std::string path = left <= states.size() ? states[left - 1].string() : std::string(), problem;
    world.broadcast(path, 0);
    run_agreed(world, [&] {
      try {
        loaded.curves = load(path, trainer.trained(), trainer.weights(), &trainer, identity, rewards);
      } catch (const Damaged& error) {
        problem = error.problem();
      }
    });
    // A state that one rank reads differently from the others is no state to resume from either.
    if (world.min(std::uint64_t{problem.empty() ? 1u : 0u}) == 1) {
      loaded.path = path;
      return loaded;
    }
    loaded.damaged.push_back({path, problem.empty() ? "is damaged as another rank reads it" : problem});
  }
  if (!loaded.damaged.empty()) throw Damaged(loaded.damaged.front().path, loaded.damaged.front().problem);
  return loaded;
}

void check_training_states(const Communicator& world, const std::string& folder, const StateIdentity& identity) {
  run_on_rank_zero(world, [&] {
    const std::vector<fs::path> states = states_in(folder);
    std::optional<Damaged> newest;
    for (auto path = states.rbegin(); path != states.rend(); ++path) {
      try {
        const StateFile ours(path->string(), identity);
        return;
      } catch (const Damaged& error) {
        if (!newest) newest = error;
      }
    }
    if (newest) throw Damaged(*newest);
  });
}

TrainingCurves load_trained_weights(const std::string& path, const FlatLayout& layout, at::Tensor& flat_weights,
                                    const StateIdentity& identity, std::int64_t rewards) {
  flat_weights = fresh_zeros(layout.flat_size());
  return load(path, layout, flat_weights, nullptr, identity, rewards);
}

}  // namespace magister
