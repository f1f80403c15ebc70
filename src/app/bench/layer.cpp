// The host queues the calls of a pass faster than the device computes them only if the device is already busy. So a few
// large products run first, and no gap is caused by the host.
#include "app/bench/layer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "app/bench/call_timer.h"
#include "app/bench/layer_parts.h"
#include "app/bench/units.h"
#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "magister/device/gpu_stamp.h"
#include "magister/device/upload.h"
#include "magister/engine/logit_reducer.h"

namespace magister {
namespace {

class LayerBench {
 public:
  LayerBench(const BenchOptions& options, Transformer& model, ProcessGroup& group, std::int64_t all_layers)
      : options_(options),
        model_(model),
        queue_(*model.queue()),
        decodes_(options.rows > 0),
        reducer_(model.lm_head(), group, model.pool(), options.top_k),
        pass_(make_pass()),
        targets_(static_cast<std::size_t>(pass_.batch.num_tokens()), 0) {
    model.use_cuda_graphs(false);  // the kernels of a graph cannot be timed one by one
    sizes_.config = model.config();
    sizes_.all_layers = all_layers;
    sizes_.rows = pass_.batch.num_tokens();
    sizes_.head_rows = is_whole() ? sizes_.rows : pass_.batch.num_sequences();
    for (std::int64_t s = 0; s < pass_.batch.num_sequences(); ++s) {
      const std::int64_t rows = pass_.batch.cu_seqlens[s + 1] - pass_.batch.cu_seqlens[s], past = pass_.batch.past(s);
      sizes_.visible_keys += visible_keys(rows, past, sizes_.config.sliding_window);
      sizes_.cached_keys += past;
    }
    const at::ScalarType dtype = resolve_gpu_dtype(options.dtype);
    sizes_.number_bytes = static_cast<std::int64_t>(c10::elementSize(activation_dtype(dtype)));
    sizes_.weight_bits = options.format == "int8" || dtype == at::kFloat8_e4m3fn ? 8
                         : options.format == "int4"                              ? 4
                                                                                 : 16;
    sizes_.group = dtype == at::kFloat8_e4m3fn ? 0 : options.group;
  }

  nlohmann::ordered_json run() {
    const int warm = queue_.on_host() ? 0 : 2;
    std::vector<std::vector<TimedCall>> passes;
    std::vector<double> unwatched;
    for (int i = 0; i < warm; ++i) one_pass(nullptr);
    for (int i = 0; i < options_.repeats; ++i) {
      unwatched.push_back(unwatched_ms());
      keep_busy();
      CallTimer timer(queue_.on_host());
      timer.start();
      one_pass(&timer);
      passes.push_back(timer.finish());
    }
    const LayerTimes times = layer_times(passes, sizes_);
    nlohmann::ordered_json result = {{"bench", "layer"},
                                     {"pass", decodes_     ? "decode"
                                              : is_whole() ? "teacher"
                                                           : "prefill"},
                                     {"rows", sizes_.rows},
                                     {"sequences", pass_.batch.num_sequences()},
                                     {"past", options_.past},
                                     {"lengths", options_.uneven ? "uneven" : "even"},
                                     {"layers", sizes_.all_layers},
                                     {"layers_measured", sizes_.config.num_hidden_layers},
                                     {"pass_ms", median(unwatched)},
                                     {"tokens_per_second", 1e3 * static_cast<double>(sizes_.rows) / times.ms}};
    result.update(layer_json(times));
    return result;
  }

 private:
  bool is_whole() const { return !decodes_ && options_.past == 0; }

  CachedUnit make_pass() const {
    const std::int64_t V = model_.config().vocab_size;
    if (!decodes_) return cached_unit(model_, probe_unit(options_, V), options_.past);
    MAGISTER_CHECK(
        options_.past >= 1, ExitCode::kUsage,
        "bench layer --rows {} without --past (a decoding pass reads a cache); give the number of its tokens",
        options_.rows);
    BenchOptions rows = options_;
    rows.tokens = rows.sequences = options_.rows;
    rows.uneven = false;
    CachedUnit unit = cached_unit(model_, probe_unit(rows, V), options_.past);
    unit.batch.is_decode_S.assign(static_cast<std::size_t>(options_.rows), 1);
    return unit;
  }

  void one_pass(CallTimer* timer) {
    const at::Tensor hidden_TD = pass_.forward(model_);
    if (timer != nullptr) timer->head_begins();
    if (is_whole()) {
      const LogitReducer::Started started = reducer_.start(hidden_TD, targets_);
      if (timer == nullptr) reducer_.finish(started);
    } else {
      std::vector<std::int64_t> last;
      for (std::size_t s = 1; s < pass_.batch.cu_seqlens.size(); ++s) last.push_back(pass_.batch.cu_seqlens[s] - 1);
      const at::Tensor rows = upload(at::tensor(last, at::kLong), hidden_TD.device());
      model_.logits(decodes_ ? hidden_TD : hidden_TD.index_select(0, rows));
    }
    if (timer == nullptr && !queue_.on_host()) GpuEvent::record().wait();
  }

  double unwatched_ms() {
    if (queue_.on_host()) {
      const auto begin = std::chrono::steady_clock::now();
      one_pass(nullptr);
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    }
    keep_busy();
    const GpuStamp begin = GpuStamp::record();
    const at::Tensor hidden_TD = pass_.forward(model_);
    if (is_whole()) {
      reducer_.start(hidden_TD, targets_);
    } else {
      model_.logits(decodes_ ? hidden_TD : hidden_TD.narrow(0, 0, sizes_.head_rows));
    }
    return GpuStamp::record().milliseconds_since(begin);
  }

  // Queues products of about six milliseconds.
  void keep_busy() {
    if (queue_.on_host()) return;
    constexpr std::int64_t kSize = 8192;
    const auto bf16 = at::TensorOptions().dtype(at::kBFloat16).device(device_of(queue_));
    if (!ballast_.defined()) ballast_ = at::ones({kSize, kSize}, bf16);
    at::Tensor out = at::empty({kSize, kSize}, bf16);
    for (int i = 0; i < 4; ++i) at::mm_out(out, ballast_, ballast_);
  }

  const BenchOptions& options_;
  Transformer& model_;
  gpu::Queue queue_;
  bool decodes_;
  LogitReducer reducer_;
  CachedUnit pass_;
  std::vector<TokenId> targets_;
  PassSizes sizes_;
  at::Tensor ballast_;
};

}  // namespace

nlohmann::ordered_json bench_layer(const BenchOptions& options, Transformer& model, ProcessGroup& group,
                                   std::int64_t all_layers) {
  return LayerBench(options, model, group, all_layers).run();
}

}  // namespace magister
