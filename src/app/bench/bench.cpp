// Times the program's own code for a unit on this rank: matrix product, forward pass, forward pass with the fused head.
#include "app/bench/bench.h"

#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "app/bench/gpu.h"
#include "app/bench/layer_parts.h"
#include "app/bench/product.h"
#include "app/bench/units.h"
#include "magister/core/error.h"
#include "magister/engine/generator.h"
#include "magister/engine/logit_reducer.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "magister/run/peak_memory.h"

namespace magister {

namespace {

nlohmann::ordered_json bench_sgemm(const BenchOptions& options) {
  constexpr std::int64_t n = 2048;
  const at::Tensor a = at::ones({n, n}, at::kFloat), b = at::ones({n, n}, at::kFloat);
  at::Tensor c = at::empty({n, n}, at::kFloat);
  const double seconds = median_seconds(options.repeats, [&] {
    sgemm(true, n, n, n, 1.0f, a.const_data_ptr<float>(), n, b.const_data_ptr<float>(), n, 0.0f, c.data_ptr<float>(),
          n);
  });
  return {{"bench", "sgemm"}, {"gflops", 2e-9 * n * n * n / seconds}, {"seconds", seconds}};
}

// Writes `sequences` texts of `tokens` new tokens each at the same time, after prompts of 16 tokens; measures the
// decoding passes without the prefill.
nlohmann::ordered_json bench_decode(const BenchOptions& options, Transformer& model) {
  constexpr std::int64_t kPrompt = 16;
  const std::int64_t pages = options.sequences * ((kPrompt + options.tokens) / KvPages::kSlots + 1) + 1;
  SamplingParams greedy;
  greedy.temperature = 0;
  Generator generator(model, {options.sequences, kPrompt * options.sequences, pages, true}, greedy, 0, {});
  for (std::int64_t s = 0; s < options.sequences; ++s) {
    std::vector<TokenId> prompt;
    prompt.reserve(kPrompt);
    for (std::int64_t i = 0; i < kPrompt; ++i)
      prompt.push_back(static_cast<TokenId>((s * 131 + i * 17) % model.config().vocab_size));
    generator.add({static_cast<std::uint64_t>(s), 0, prompt, options.tokens});
  }
  generator.step();  // the prefill
  const std::uint64_t before = generator.counts().written_tokens;
  const auto start = std::chrono::steady_clock::now();
  while (!generator.idle()) generator.step();
  const double total = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::uint64_t tokens = generator.counts().written_tokens - before;
  const double passes = static_cast<double>(generator.counts().passes - 1);
  return {{"bench", "decode"},
          {"tokens_per_second", static_cast<double>(tokens) / total},
          {"gbs", passes * static_cast<double>(model.weight_bytes()) / total * 1e-9},
          {"seconds", total},
          {"sequences", options.sequences},
          {"weight_bytes", model.weight_bytes()}};
}

// Decoding passes of one row of each text, after `past` tokens of it that are in the cache, as zeros.
nlohmann::ordered_json bench_decode_after_past(BenchOptions options, Transformer& model) {
  const int passes = static_cast<int>(options.tokens);
  options.tokens = options.sequences;
  CachedUnit unit = cached_unit(model, probe_unit(options, model.config().vocab_size), options.past);
  unit.batch.is_decode_S.assign(static_cast<std::size_t>(options.sequences), 1);
  const double seconds = median_seconds(passes, [&] { model.logits(unit.forward(model)); });
  return {{"bench", "decode"},
          {"tokens_per_second", static_cast<double>(options.sequences) / seconds},
          {"gbs", static_cast<double>(model.weight_bytes()) / seconds * 1e-9},
          {"seconds", seconds},
          {"sequences", options.sequences},
          {"past", options.past},
          {"weight_bytes", model.weight_bytes()}};
}

// Computes the last row of `sequences` prompts of `tokens` tokens whose first 80 % are the same, with and without
// sharing of prefixes.
nlohmann::ordered_json bench_prefix(const BenchOptions& options, Transformer& model) {
  const std::int64_t shared = options.tokens * 4 / 5, V = model.config().vocab_size;
  const auto seconds = [&](bool share) {
    return median_seconds(options.repeats, [&] {
      const std::int64_t pages = options.sequences * (options.tokens / KvPages::kSlots + 2);
      Generator generator(model, {options.sequences, 1024, pages, share}, {}, 0, {});
      for (std::int64_t s = 0; s < options.sequences; ++s) {
        std::vector<TokenId> prompt;
        prompt.reserve(static_cast<std::size_t>(options.tokens));
        for (std::int64_t i = 0; i < options.tokens; ++i)
          prompt.push_back(static_cast<TokenId>((i * 31 + (i < shared ? 0 : s + 1) * 977) % V));
        generator.add({static_cast<std::uint64_t>(s), 0, prompt, 0});
      }
      while (!generator.idle()) generator.step();
    });
  };
  const double alone = seconds(false), together = seconds(true);
  return {{"bench", "prefix"},      {"ratio", alone / together}, {"seconds", together},
          {"seconds_alone", alone}, {"tokens", options.tokens},  {"sequences", options.sequences}};
}

nlohmann::ordered_json bench_model(const BenchOptions& options, ThreadPool& pool) {
  const auto group = make_single_process_group();
  const auto file = TensorFile::open(options.model);
  const bool quantized = options.format.starts_with("int");
  const QuantScheme scheme = quant_scheme(quantized ? options.format : "none", quantized ? options.group : 0);
  Transformer model(describe_model(options.model, *file), *file, *group, pool, resolve_cpu_dtype(options.dtype),
                    scheme);
  model.self_test();
  if (options.what == "decode")
    return options.past > 0 ? bench_decode_after_past(options, model) : bench_decode(options, model);
  if (options.what == "prefix") return bench_prefix(options, model);
  const PackedBatch batch = probe_unit(options, model.config().vocab_size);
  std::vector<TokenId> targets(static_cast<std::size_t>(options.tokens), 0);
  const bool with_head = options.what == "teacher";
  const LogitReducer reducer(model.lm_head(), *group, pool, options.top_k);
  const double seconds = median_seconds(options.repeats, [&] {
    const at::Tensor hidden_TD = model.forward(batch);
    if (with_head) reducer.reduce(hidden_TD, targets);
  });
  const double flops = model.forward_flops(batch) + (with_head ? model.head_flops(options.tokens) : 0.0);
  return {{"bench", options.what},
          {"tokens_per_second", static_cast<double>(options.tokens) / seconds},
          {"gflops", flops / seconds * 1e-9},
          {"seconds", seconds},
          {"tokens", options.tokens},
          {"weight_bytes", model.weight_bytes()}};
}

}  // namespace

std::string run_bench(const BenchOptions& options) {
  MAGISTER_CHECK(options.tokens >= 1 && options.sequences >= 1 && options.repeats >= 1 && options.threads >= 1,
                 ExitCode::kUsage,
                 "bench needs at least one token, sequence, thread and repeat (got {}, {}, {}, {}); "
                 "give positive numbers",
                 options.tokens, options.sequences, options.threads, options.repeats);
  const bool divides = options.what == "prefill" || options.what == "teacher" || options.what == "layer";
  MAGISTER_CHECK(!divides || options.rows > 0 || options.sequences <= options.tokens, ExitCode::kUsage,
                 "--sequences {} of --tokens {} (a sequence would be empty); give fewer sequences or more tokens",
                 options.sequences, options.tokens);
  ThreadPool pool(options.threads);
  nlohmann::ordered_json result;
  const bool for_gpus = options.random || !options.graphs || options.cudnn || options.throughput || options.fp8_cache ||
                        options.layers > 0 || options.at_once > 0 || options.uneven ||
                        (options.past > 0 && options.what != "decode");
  MAGISTER_CHECK(
      options.device != "cpu" || !for_gpus, ExitCode::kUsage,
      "--random, --graph off, --attention cudnn, --decoding throughput, --kv-cache fp8, --layers, --at-once, "
      "--lengths uneven and, of all benches but decode, --past are for GPUs (on a CPU they would change "
      "nothing); name one by --device");
  if (options.device != "cpu") {
    result = run_gpu_bench(options);
  } else if (options.what == "sgemm") {
    result = bench_sgemm(options);
  } else if (options.what == "product") {
    result = bench_product(options);
  } else if (options.what == "prefill" || options.what == "teacher" || options.what == "decode" ||
             options.what == "prefix") {
    result = bench_model(options, pool);
  } else {
    for (const char* of_gpus : {"gemm", "copy", "read", "judge", "layer"}) {
      MAGISTER_CHECK(options.what != of_gpus, ExitCode::kUsage,
                     "bench {} is for GPUs (it measures their kernels); name one by --device", of_gpus);
    }
    fail(ExitCode::kUsage,
         "there is no bench named \"{}\" (nothing was measured); choose sgemm, product, prefill, teacher, decode or "
         "prefix",
         printable(options.what));
  }
  result["threads"] = options.threads;
  result["cpu_kernels"] = cpu_kernels().name;
  result["cpu_features"] = cpu_features();
  // Not of getrusage(2), which counts the process that was forked for this one, too: Python with its libraries.
  result["peak_bytes"] = peak_memory({}).host_bytes;
  if (options.json) return result.dump();
  if (options.what == "layer") return layer_table(result);
  std::string line;
  for (const auto& [key, value] : result.items()) {
    line += fmt::format("{}{}: {}", line.empty() ? "" : "  ", key,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return line;
}

}  // namespace magister
