// A state has the numbers of the step that began it, whatever the next steps write while it is copied and written. The
// host plays the GPU: it makes a queued copy as late as a GPU may make it.
#include "magister/train/state_writer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "magister/train/gradient_tree.h"
#include "magister/train/weights_file.h"

namespace magister {
namespace state_writer_test {

namespace fs = std::filesystem;

// The larger one makes a model of two buckets.
constexpr std::int64_t kVocab = 1'500, kLargeVocab = 26'500;

ModelDescription some_model(const fs::path& folder, std::int64_t vocab) {
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"vocab_size", vocab},
                                 {"hidden_size", 128},
                                 {"intermediate_size", 96},
                                 {"num_hidden_layers", 1},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 64},
                                 {"rms_norm_eps", 1e-5},
                                 {"tie_word_embeddings", false}};
  const fs::path path = folder / ("config" + std::to_string(::getpid()) + ".json");
  std::ofstream(path) << config.dump();
  ModelDescription description = describe_config(path.string());
  fs::remove(path);
  return description;
}

// A folder that all ranks know and the first one makes.
fs::path shared_folder(const Communicator& world) {
  std::string path;
  if (world.rank() == 0) {
    path = (fs::temp_directory_path() / ("state_writer_" + std::to_string(::getpid()))).string();
    fs::create_directories(path);
  }
  world.broadcast(path, 0);
  return path;
}

struct Way {
  bool gpu = true, divided = true, exchange = true;
  std::int64_t vocab = kVocab;
};

class Training {
 public:
  Training(const Communicator& world, const fs::path& folder, const Way& way)
      : vocab_(way.vocab),
        layout_(some_model(folder, vocab_)),
        flat_(((at::arange(layout_.flat_size(), at::kFloat) * 0.77f).sin() * 0.05f)),
        file_(weights_as_file(layout_, flat_, std::nullopt, std::nullopt)),
        world_(world),
        trainer_(layout_, *file_, options(world, way), world, 1) {}

  Trainer& trainer() { return trainer_; }
  void step() {
    constexpr std::uint64_t kBatches = 3;
    const IndexRange own = micro_batches_of(kBatches, world_.rank(), world_.size());
    std::vector<MicroBatch> batches;
    for (std::uint64_t i = own.begin; i < own.end; ++i) {
      MicroBatch& batch = batches.emplace_back();
      const std::int64_t begin = static_cast<std::int64_t>(i + 10 * number_);
      batch.tokens = {(at::arange(begin, begin + 12, at::kLong) * 1777).remainder(vocab_), {0, 12}};
      batch.targets.labels_T = batch.tokens.token_ids_T.roll(1);
    }
    ++number_;
    const StepResult result = trainer_.step(kBatches, batches, 1e-2);
    EXPECT_FALSE(result.skipped);
  }
  void save(StateWriter& writer) const {
    TrainingCurves curves;
    curves.step = number_;
    curves.loss.assign(number_, 1.0f);
    curves.grad_norm.assign(number_, 2.0f);
    writer.save(curves);
  }

 private:
  static TrainerOptions options(const Communicator& world, const Way& way) {
    TrainerOptions options;
    options.distill.weight = 0;
    options.distill.lm_weight = 1;
    options.divides_optimizer = way.divided;
    if (!way.gpu) return options;
    options.gpu = gpu::Queue{};
    options.sums_on_gpu = options.optimizer_on_gpu = true;
    options.gpus_exchange = way.exchange && world.size() > 1;
    return options;
  }

  std::int64_t vocab_;
  ParameterLayout layout_;
  at::Tensor flat_;
  std::unique_ptr<TensorFile> file_;
  const Communicator& world_;
  Trainer trainer_;
  std::uint64_t number_ = 0;
};

std::vector<Way> ways_of_gpus(const Communicator& world) {
  if (world.size() == 1) return {{}};
  return {{.vocab = kLargeVocab}, {}, {.divided = false}, {.exchange = false}};
}

TEST(StateWriter, AnUpdateBeginsAfterTheCopiesOfWhatItWrites) {
  const Communicator world = Communicator::world();
  const fs::path folder = shared_folder(world);
  for (const Way& way : ways_of_gpus(world)) {
    Training training(world, folder, way);
    training.step();
    Trainer& trainer = training.trainer();
    CopyQueue& queue = trainer.copy_queue();
    const std::array numbers = {trainer.weights(), trainer.optimizer().mean, trainer.optimizer().square};
    std::vector<at::Tensor> before;
    std::vector<CopyQueue::Copy> copies;
    for (const at::Tensor& from : numbers) {
      before.push_back(from.clone());
      copies.push_back({from, queue.take(from.numel())});
    }
    queue.start(copies);
    training.step();
    queue.wait();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_TRUE(at::equal(copies[i].to, before[i])) << way.divided << way.exchange << i;
      EXPECT_FALSE(at::equal(numbers[i], before[i])) << i;  // else any time would do
    }
    trainer.close();
  }
  world.barrier();
  if (world.rank() == 0) fs::remove_all(folder);
}

std::string bytes_of_state(const fs::path& folder, int step) {
  std::ifstream file(folder / fmt::format("step-{:08}.safetensors", step), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What is written at once, between two steps, is the oracle.
TEST(StateWriter, AStateHasTheNumbersOfTheStepThatBeganIt) {
  const Communicator world = Communicator::world();
  const fs::path folder = shared_folder(world);
  std::vector<Way> ways = ways_of_gpus(world);
  ways.push_back({.gpu = false});
  for (std::size_t i = 0; i < ways.size(); ++i) {
    Training training(world, folder, ways[i]);
    training.step();
    const fs::path waits = folder / fmt::format("waits{}", i), goes_on = folder / fmt::format("goes_on{}", i);
    StateWriter at_once(waits.string(), training.trainer(), {"some"}, 9, false);
    StateWriter beside(goes_on.string(), training.trainer(), {"some"}, 9, true);
    training.save(at_once);
    training.save(beside);
    training.step();
    beside.collect();
    // The next state is in the same memory, and no update follows on it.
    for (StateWriter* const writer : {&at_once, &beside}) training.save(*writer);
    beside.wait();
    using Steps = std::vector<std::uint64_t>;
    EXPECT_EQ(beside.take_written(), world.rank() == 0 ? (Steps{1, 2}) : Steps());
    for (const int step : {1, 2}) {
      if (world.rank() != 0) continue;
      const std::string expected = bytes_of_state(waits, step);
      EXPECT_GT(static_cast<std::int64_t>(expected.size()), 12 * 2 * 128 * ways[i].vocab);
      EXPECT_TRUE(bytes_of_state(goes_on, step) == expected) << i << " " << step;
    }
    training.trainer().close();
  }
  world.barrier();
  if (world.rank() == 0) fs::remove_all(folder);
}

}  // namespace state_writer_test
}  // namespace magister
