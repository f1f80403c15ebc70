// All times are taken on the host between two moments at which the device is idle: medians of several runs.
// `--device host` runs the same code on the CPU, so that it is tested on machines without a GPU; its figures have no
// meaning.
#include "app/bench/gpu.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>

#include "app/bench/layer.h"
#include "app/bench/units.h"
#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "magister/device/upload.h"
#include "magister/engine/generator.h"
#include "magister/engine/logit_reducer.h"
#include "magister/parallel/process_group.h"

namespace magister {
namespace {

gpu::Queue queue_named(const std::string& device) {
  if (device == "host") return {};
  const std::string prefix = "cuda:";
  MAGISTER_CHECK(device.starts_with(prefix) && device.size() > prefix.size() && device.size() < 9 &&
                     std::all_of(device.begin() + 5, device.end(), [](char c) { return c >= '0' && c <= '9'; }),
                 ExitCode::kUsage, "--device {} (there is no such device); write cpu or cuda:0", printable(device));
  return {std::stoi(device.substr(prefix.size())), nullptr};
}

class GpuBench {
 public:
  explicit GpuBench(const BenchOptions& options)
      : options_(options),
        queue_(queue_named(options.device)),
        pool_(options.threads),
        group_(make_single_process_group()),
        device_(device_of(queue_)) {
    if (!queue_.on_host()) open_gpu(queue_.device);
  }

  nlohmann::ordered_json run() {
    const std::string& what = options_.what;
    if (what == "gemm") return gemm();
    if (what == "copy") return copy();
    if (what == "read") return read();
    MAGISTER_CHECK(what == "prefill" || what == "teacher" || what == "decode" || what == "judge" || what == "layer",
                   ExitCode::kUsage,
                   "there is no bench named \"{}\" on a GPU (nothing was measured); choose gemm, copy, read, prefill, "
                   "teacher, decode, judge or layer",
                   printable(what));
    MAGISTER_CHECK(options_.at_once == 0 || what == "judge", ExitCode::kUsage,
                   "--at-once with bench {} (it measures one batch); leave the option out, or choose judge", what);
    load();
    if (what == "layer") return bench_layer(options_, *model_, *group_, all_layers_);
    return what == "decode" ? decode() : what == "judge" ? judge() : unit(what == "teacher");
  }

 private:
  void finish() const {
    if (!queue_.on_host()) GpuEvent::record().wait();
  }

  double seconds_of(const std::function<void()>& body) const {
    return median_seconds(options_.repeats, [&] {
      body();
      finish();
    });
  }

  // Ten products per run, so that the cost of a launch does not count.
  nlohmann::ordered_json gemm() const {
    const std::int64_t n = queue_.on_host() ? 64 : 8192;
    const auto bf16 = at::TensorOptions().dtype(at::kBFloat16).device(device_);
    const at::Tensor a = at::randn({n, n}, bf16), b = at::randn({n, n}, bf16);
    at::Tensor c = at::empty({n, n}, bf16);
    const double seconds = seconds_of([&] {
                             for (int i = 0; i < 10; ++i) at::mm_out(c, a, b.t());
                           }) /
                           10;
    return {{"bench", "gemm"},
            {"n", n},
            {"tflops", 2e-12 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / seconds},
            {"seconds", seconds}};
  }

  nlohmann::ordered_json copy() const {
    const std::int64_t bytes = queue_.on_host() ? 1 << 20 : std::int64_t{4} << 30;
    const auto u8 = at::TensorOptions().dtype(at::kByte).device(device_);
    const at::Tensor from = at::zeros({bytes}, u8);
    at::Tensor to = at::empty({bytes}, u8);
    const double seconds = seconds_of([&] { to.copy_(from); });
    return {{"bench", "copy"},
            {"bytes", bytes},
            {"gbs", 2e-9 * static_cast<double>(bytes) / seconds},
            {"seconds", seconds}};
  }

  // Decoding only reads, so this sums a tensor that is larger than all caches and writes almost nothing.
  nlohmann::ordered_json read() const {
    const std::int64_t bytes = queue_.on_host() ? 1 << 20 : std::int64_t{4} << 30;
    const at::Tensor from = at::ones({bytes / 4}, at::TensorOptions().dtype(at::kFloat).device(device_));
    const double seconds = seconds_of([&] { from.sum(); });
    return {{"bench", "read"},
            {"bytes", bytes},
            {"gbs", 1e-9 * static_cast<double>(bytes) / seconds},
            {"seconds", seconds}};
  }

  void load() {
    const bool quantized = options_.format.starts_with("int");
    const QuantScheme scheme = quant_scheme(quantized ? options_.format : "none", quantized ? options_.group : 0);
    const at::ScalarType dtype = resolve_gpu_dtype(options_.dtype);
    if (options_.random) {
      namespace fs = std::filesystem;
      const fs::path path(options_.model);
      ModelDescription description = describe_config((fs::is_directory(path) ? path / "config.json" : path).string());
      std::int64_t& layers = description.config.num_hidden_layers;
      all_layers_ = layers;
      if (options_.layers > 0) layers = std::min(layers, options_.layers);
      model_.emplace(description.config, *group_, pool_, dtype, scheme, queue_);
    } else {
      MAGISTER_CHECK(options_.layers == 0, ExitCode::kUsage,
                     "--layers {} without --random (a file's model has all of its layers); leave one of them out",
                     options_.layers);
      file_ = TensorFile::open(options_.model);
      model_.emplace(describe_model(options_.model, *file_), *file_, *group_, pool_, dtype, scheme, queue_);
    }
    if (!options_.random) all_layers_ = model_->config().num_hidden_layers;
    model_->self_test();
    model_->use_cuda_graphs(options_.graphs);
    if (options_.cudnn && !queue_.on_host()) model_->use_cudnn_attention();
    if (options_.throughput && !queue_.on_host()) model_->use_throughput_decoding();
    if (options_.fp8_cache) model_->use_fp8_cache();
  }

  // Returns the peak since the last call with `reset`. With `reset` returns the bytes that are allocated now.
  std::uint64_t peak_device_bytes(bool reset) const {
    if (queue_.on_host()) return 0;
    const GpuAllocated allocated = gpu_allocated(queue_.device);
    if (reset) reset_gpu_peak(queue_.device);
    return reset ? allocated.bytes : allocated.peak_bytes;
  }

  // Runs units one after the other as a teacher run does: the next one is queued before the rows of the last are made.
  nlohmann::ordered_json unit(bool with_head) {
    MAGISTER_CHECK(!with_head || options_.past == 0, ExitCode::kUsage,
                   "bench teacher --past {} (a teacher's units have no cache); measure prefill with it", options_.past);
    const ModelConfig& config = model_->config();
    CachedUnit cached = cached_unit(*model_, probe_unit(options_, config.vocab_size), options_.past);
    const PackedBatch& batch = cached.batch;
    const std::vector<TokenId> targets(static_cast<std::size_t>(options_.tokens), 0);
    const LogitReducer reducer(model_->lm_head(), *group_, pool_, options_.top_k);
    std::optional<LogitReducer::Started> last;
    const auto one = [&] {
      const at::Tensor hidden_TD = cached.forward(*model_);
      if (!with_head) return;
      LogitReducer::Started next = reducer.start(hidden_TD, targets);
      if (last) reducer.finish(*last);
      last = std::move(next);
    };
    one();
    finish();
    const std::uint64_t before = peak_device_bytes(true);
    at::Tensor hidden_TD = cached.forward(*model_);
    finish();
    const std::uint64_t work = peak_device_bytes(false) - before, with_hidden = peak_device_bytes(true);
    if (with_head) {
      reducer.finish(reducer.start(hidden_TD, targets));
    }
    const std::uint64_t head = with_head ? peak_device_bytes(false) - with_hidden : 0;
    hidden_TD.reset();
    const double seconds = seconds_of(one);
    double flops = model_->forward_flops(batch) + (with_head ? model_->head_flops(options_.tokens) : 0.0);
    for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {  // adds the attention over the cached keys
      const std::int64_t rows = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
      for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        const std::int64_t window = config.slides(layer) ? config.sliding_window : 0;
        const double more = visible_keys(rows, options_.past, window) - visible_keys(rows, 0, window);
        flops += 2 * more * static_cast<double>(config.num_attention_heads) *
                 static_cast<double>(config.head_dim_of(layer) + config.value_dim_of(layer));
      }
    }
    nlohmann::ordered_json result = {{"bench", options_.what},
                                     {"tokens_per_second", static_cast<double>(options_.tokens) / seconds},
                                     {"tflops", flops / seconds * 1e-12},
                                     {"seconds", seconds},
                                     {"tokens", options_.tokens},
                                     {"sequences", options_.sequences},
                                     {"past", options_.past},
                                     {"lengths", options_.uneven ? "uneven" : "even"},
                                     {"weight_bytes", model_->weight_bytes()},
                                     {"work_bytes", work}};
    if (with_head) result.update({{"head_bytes", head}, {"top_k", options_.top_k}});
    return result;
  }

  std::unique_ptr<Generator> make_generator(std::int64_t prompt, std::int64_t written, std::int64_t budget) {
    const std::int64_t at_once = options_.at_once > 0 ? options_.at_once : options_.sequences;
    const std::int64_t pages = at_once * ((prompt + written) / KvPages::kSlots + 2) + 1;
    SamplingParams greedy;
    greedy.temperature = 0;
    auto generator = std::make_unique<Generator>(*model_, GeneratorLimits{at_once, budget, pages, false}, greedy, 0,
                                                 Generator::Stop{});
    for (std::int64_t s = 0; s < options_.sequences; ++s) {
      std::vector<TokenId> tokens;
      tokens.reserve(static_cast<std::size_t>(prompt));
      for (std::int64_t i = 0; i < prompt; ++i)
        tokens.push_back(static_cast<TokenId>((s * 131 + i * 17 + 1) % model_->config().vocab_size));
      generator->add({static_cast<std::uint64_t>(s), 0, tokens, written});
    }
    return generator;
  }

  // Measures steps after the prompts, while all texts are generated; a step reads all layers and the head once.
  nlohmann::ordered_json decode() {
    constexpr std::int64_t kPass = 8192;
    const std::int64_t warm = queue_.on_host() ? 1 : 4;  // the first steps record the graph
    const std::int64_t prompt = options_.past > 0 ? options_.past : 16, all = prompt * options_.sequences;
    const std::int64_t prefills = (all + kPass - 1) / kPass;
    const std::unique_ptr<Generator> generator =
        make_generator(prompt, options_.tokens + warm + 2 * prefills + 2, std::min(all, std::max(kPass, prompt)));
    const auto written = [&] { return static_cast<std::int64_t>(generator->counts().written_tokens); };
    // Steps until every text is being generated: early texts get a token per pass while later prompts are computed.
    const auto computed = [&] { return generator->counts().computed_tokens; };
    for (std::uint64_t before = computed(), rows = 0;
         rows != static_cast<std::uint64_t>(options_.sequences) && !generator->idle(); before = computed()) {
      generator->step();
      rows = written() < options_.sequences ? 0 : computed() - before;
    }
    for (std::int64_t i = 0; i < warm; ++i) generator->step();
    const std::uint64_t before = generator->counts().written_tokens, passes = generator->counts().passes;
    const std::int64_t enough = written() + options_.tokens * options_.sequences;
    const auto start = std::chrono::steady_clock::now();
    while (written() < enough && !generator->idle()) generator->step();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto tokens = static_cast<double>(generator->counts().written_tokens - before);
    const double a_step = seconds / std::max<double>(1, static_cast<double>(generator->counts().passes - passes));
    // Single rows of the embedding table are read, so it does not count; a tied table is the head.
    const ModelConfig& config = model_->config();
    const std::uint64_t table = static_cast<std::uint64_t>(config.vocab_size * config.hidden_size) *
                                c10::elementSize(activation_dtype(resolve_gpu_dtype(options_.dtype)));
    const std::uint64_t read = model_->weight_bytes() - (config.tie_word_embeddings ? 0 : table);
    return {{"bench", "decode"},
            {"tokens_per_second", tokens / seconds},
            {"seconds_a_step", a_step},
            {"weight_bytes", model_->weight_bytes()},
            {"bytes_a_step", read},
            {"gbs", 1e-9 * static_cast<double>(read) / a_step},
            {"sequences", options_.sequences},
            {"prompt_tokens", prompt},
            {"kv_cache", options_.fp8_cache ? "fp8" : "auto"},
            {"graphs", options_.graphs}};
  }

  nlohmann::ordered_json judge() {
    // With so few prompts the model may leave no memory for long passes.
    constexpr std::int64_t kFew = 8;
    const std::int64_t written = queue_.on_host() ? 2 : 128;
    const std::int64_t at_once = options_.at_once > 0 ? options_.at_once : options_.sequences;
    const std::unique_ptr<Generator> generator = make_generator(
        options_.tokens, written, at_once <= kFew ? options_.tokens : std::max<std::int64_t>(options_.tokens, 8192));
    const auto start = std::chrono::steady_clock::now();
    while (!generator->idle()) generator->step();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return {{"bench", "judge"},
            {"tokens_per_second", static_cast<double>(options_.sequences * (options_.tokens + written)) / seconds},
            {"seconds", seconds},
            {"prompt_tokens", options_.tokens},
            {"new_tokens", written},
            {"sequences", options_.sequences},
            {"at_once", at_once},
            {"weight_bytes", model_->weight_bytes()}};
  }

  const BenchOptions& options_;
  gpu::Queue queue_;
  ThreadPool pool_;
  std::unique_ptr<ProcessGroup> group_;
  at::Device device_;
  std::unique_ptr<TensorFile> file_;
  std::optional<Transformer> model_;
  std::int64_t all_layers_ = 0;  // of the whole model, even if only some are made
};

}  // namespace

nlohmann::ordered_json run_gpu_bench(const BenchOptions& options) {
  nlohmann::ordered_json result = GpuBench(options).run();
  result["device"] = options.device;
  result["dtype"] = options.dtype;
  result["format"] = options.format;
  return result;
}

}  // namespace magister
