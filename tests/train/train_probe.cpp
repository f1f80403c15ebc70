// Trains a model on sequences of token ids, for oracle_test.py to compare with transformers and torch. Sequences of a
// micro-batch are packed.
// usage: train_probe gradients MODEL STEPS.json OUT_DIR 0|1|2|3: hidden states of the inference forward and of
// training,
//       every gradient of the first step as OUT_DIR/<name>.f32, and the names of what decays; 1: layers are computed
//       again in the backward pass; 2: products in bf16; 3: both
//       train_probe steps MODEL STEPS.json OPTIONS.json THREADS: one line per step: loss, norm, lr
// With MAGISTER_GPU_CODE_ON_HOST=1 in the environment the GPU's code is used.
// STEPS.json: steps of micro-batches of sequences of ids. Every token except a sequence's first is a label.
#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "../support/serve_cases.h"
#include "magister/core/error.h"
#include "magister/model/transformer.h"
#include "magister/train/trainer.h"

namespace magister {
namespace {

using nlohmann::json;
using Sequences = std::vector<std::vector<TokenId>>;

json read_json(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

void write_f32(const std::filesystem::path& path, const at::Tensor& tensor) {
  const at::Tensor plain = tensor.contiguous();
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(plain.const_data_ptr()), static_cast<std::streamsize>(plain.nbytes()));
}

MicroBatch micro_batch(const Sequences& sequences) {
  const PackedBatch packed = pack_sequences(sequences);
  MicroBatch batch;
  batch.tokens = {packed.token_ids_T.to(at::kLong), packed.cu_seqlens};
  batch.targets.labels_T = at::full({packed.num_tokens()}, -100, at::kLong);
  for (std::int64_t s = 0; s < packed.num_sequences(); ++s) {
    const std::int64_t begin = packed.cu_seqlens[s], count = packed.cu_seqlens[s + 1] - begin - 1;
    batch.targets.labels_T.narrow(0, begin, count).copy_(batch.tokens.token_ids_T.narrow(0, begin + 1, count));
  }
  return batch;
}

std::optional<gpu::Queue> wanted_gpu() {
  return std::getenv("MAGISTER_GPU_CODE_ON_HOST") != nullptr ? std::optional(gpu::Queue{}) : std::nullopt;
}

std::vector<MicroBatch> micro_batches(const json& step) {
  std::vector<MicroBatch> batches;
  for (const json& sequences : step) batches.push_back(micro_batch(sequences.get<Sequences>()));
  return batches;
}

int gradients(const std::string& model, const json& steps, const std::filesystem::path& out, const std::string& how) {
  const TrunkOptions trunk{how == "1" || how == "3", how == "2" || how == "3", wanted_gpu().has_value()};
  const auto file = TensorFile::open(model);
  const ParameterLayout layout(describe_model(model, *file));
  const Communicator alone;
  TrainerOptions options;
  options.distill.weight = 0;
  options.distill.lm_weight = 1;
  options.recompute = trunk.recompute;
  options.bf16 = trunk.bf16;
  options.gpu = wanted_gpu();
  Trainer trainer(layout, *file, options, alone, 1);
  const std::vector<MicroBatch> batches = micro_batches(steps.at(0));
  at::Tensor gradient;
  const StepResult result = trainer.differentiate(batches.size(), batches, gradient);
  std::printf("%.17g\n", result.loss);
  for (std::size_t i = 0; i < layout.all().size(); ++i)
    write_f32(out / (layout.all()[i].name + ".f32"), layout.view(gradient, i));
  // The inference forward of the same tokens.
  auto groups = make_cpu_process_groups(alone, 1);
  ThreadPool pool(1);
  Transformer inference(layout.description(), *file, *groups[0], pool, at::kFloat);
  double worst = 0;
  for (const json& sequences : steps.at(0)) {
    const MicroBatch batch = micro_batch(sequences.get<Sequences>());
    const at::Tensor own = TrunkPass(layout, trainer.weights(), batch.tokens, trunk).hidden_TD();
    // It scales the last norm by what it scales the logits with.
    const at::Tensor other =
        inference.forward(pack_sequences(sequences.get<Sequences>())) / layout.description().config.logit_scale;
    worst = std::max(worst, ((own - other).abs().max() / other.abs().max()).item<double>());
  }
  std::printf("%.17g\n", worst);
  for (const TrainParameter& parameter : layout.all()) {
    if (parameter.decays) std::printf("%s ", parameter.name.c_str());
  }
  std::printf("\n");
  return 0;
}

int steps(const std::string& model, const json& steps, const json& choices, int threads) {
  const auto file = TensorFile::open(model);
  const ParameterLayout layout(describe_model(model, *file));
  const Communicator alone;
  TrainerOptions options;
  options.distill.weight = 0;
  options.distill.lm_weight = 1;
  options.gpu = wanted_gpu();
  // Parts on a GPU: "host" none, "sums" or "all".
  const std::string on_gpu = choices.value("on_gpu", "host");
  options.sums_on_gpu = on_gpu != "host";
  options.optimizer_on_gpu = on_gpu == "all";
  options.optimizer.lr = choices.at("lr");
  options.optimizer.weight_decay = choices.at("weight_decay");
  options.optimizer.clip = choices.at("clip");
  const std::string name = choices.at("schedule");
  const LrSchedule schedule = name == "linear"   ? LrSchedule::kLinear
                              : name == "cosine" ? LrSchedule::kCosine
                                                 : LrSchedule::kConstant;
  Trainer trainer(layout, *file, options, alone, threads);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::vector<MicroBatch> batches = micro_batches(steps[i]);
    const double lr = options.optimizer.lr * lr_factor(schedule, i, choices.at("warmup"), steps.size());
    const StepResult result = trainer.step(batches.size(), batches, lr);
    std::printf("%.17g %.17g %.17g\n", result.loss, result.grad_norm, lr);
  }
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5) return 64;
  if (arguments[0] == "gradients") return gradients(arguments[1], read_json(arguments[2]), arguments[3], arguments[4]);
  return steps(arguments[1], read_json(arguments[2]), read_json(arguments[3]), std::stoi(arguments[4]));
}

}  // namespace
}  // namespace magister

int main(int argc, char** argv) {
  return magister::test::serve_cases(argc, argv, [](int count, char** texts) {
    try {
      return magister::run({texts + 1, texts + count});
    } catch (const magister::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return static_cast<int>(error.code());
    }
  });
}
