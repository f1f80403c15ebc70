// The names of calls decide. A new kernel between two products gets its part from the calls around it; a kernel that
// does the work of a known part needs a word in its name (norm, rotate, gate or silu, attention, product, reduce).
#include "app/bench/layer_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "app/bench/units.h"
#include "magister/core/error.h"

namespace magister {

std::pair<std::int64_t, std::int64_t> PassSizes::weight(const std::string& place) const {
  const ModelConfig& c = config;
  const std::int64_t D = c.hidden_size, F = c.intermediate_size, E = c.head_dim, H = c.num_attention_heads;
  if (place == "qkv_proj") return {(H + 2 * c.num_key_value_heads) * E, D};
  if (place == "o_proj") return {D, H * E};
  if (place == "gate_up_proj") return {2 * F, D};
  if (place == "down_proj") return {D, F};
  if (place == "head") return {c.vocab_size, D};
  return {0, 0};
}

namespace {

bool has(const std::string& name, const char* word) { return name.find(word) != std::string::npos; }
bool is_kernel(const std::string& name) { return !name.starts_with("aten::"); }
bool is_own_product(const std::string& name) { return is_kernel(name) && has(name, "product"); }

// The position of the current call in its layer.
class Place {
 public:
  explicit Place(const PassSizes& sizes) : sizes_(sizes) {}

  std::string next(const TimedCall& call) {
    const std::string& name = call.name;
    if (call.of_head)
      return is_kernel(name) && call.M == 0 && !is_own_product(name) && !has(name, "quantize") ? "reduction" : "head";
    if (has(name, "embed")) {  // also if a pass starts again with other rows
      norms_ = 0;
      return "embedding";
    }
    if (is_kernel(name) && has(name, "norm")) {
      // A norm of rows that are added to the residual stream; the norm of the stream follows.
      if (has(name, "norm_rows")) return "norm";
      ++norms_;
      half_ = kFirst;
      own_products_ = 0;
      return "norm";
    }
    if (norms_ == 0) return "inputs";
    if (norms_ > 2 * sizes_.config.num_hidden_layers) return "rest";
    return norms_ % 2 == 1 ? in_attention(call) : in_mlp(call);
  }

 private:
  enum Half { kFirst, kMiddle, kLast };  // the product before rotation or activation; these; the product after them

  std::string product(const TimedCall& call, const char* first, const char* last) {
    const std::pair shape{call.N, call.K};
    const bool is_first = shape == sizes_.weight(first), is_last = shape == sizes_.weight(last);
    if (is_own_product(call.name)) {
      if (own_products_++ > 0) half_ = kLast;
    } else if (is_first != is_last) {
      half_ = is_last ? kLast : kFirst;
    } else if (half_ == kMiddle) {
      half_ = kLast;
    }
    return half_ == kLast ? last : first;
  }

  std::string in_attention(const TimedCall& call) {
    if (call.M > 0 || is_own_product(call.name)) {
      const std::string place = product(call, "qkv_proj", "o_proj");
      if (has(call.name, "rotate")) half_ = kMiddle;  // the rotation is in the product
      return place;
    }
    if (has(call.name, "rotate")) {
      half_ = kMiddle;
      return "rotary";
    }
    // Calls that prepare a product: its rows in another type or number, its weight dequantised.
    if (half_ == kMiddle && (has(call.name, "quantize") || has(call.name, "constant_pad"))) half_ = kLast;
    return half_ == kFirst ? "qkv_proj" : half_ == kMiddle ? "attention" : "o_proj";
  }

  std::string in_mlp(const TimedCall& call) {
    if (call.M > 0 || is_own_product(call.name)) return product(call, "gate_up_proj", "down_proj");
    if (is_kernel(call.name) && (has(call.name, "gate") || has(call.name, "activate") || has(call.name, "silu"))) {
      half_ = kLast;
      return "activation";
    }
    return half_ == kFirst ? "gate_up_proj" : "down_proj";
  }

  const PassSizes& sizes_;
  std::int64_t norms_ = 0;
  Half half_ = kFirst;
  int own_products_ = 0;
};

bool in_every_layer(const std::string& place) {
  return place != "inputs" && place != "embedding" && place != "head" && place != "reduction" && place != "rest";
}

// Bytes of a stored weight with its scales.
double weight_bytes(const PassSizes& sizes, std::int64_t N, std::int64_t K, bool is_head) {
  if (is_head || sizes.weight_bits == 16) return static_cast<double>(N * K * sizes.number_bytes);
  const std::int64_t groups = sizes.group == 0 ? 1 : (K + sizes.group - 1) / sizes.group;
  return static_cast<double>(N * K * sizes.weight_bits) / 8 + static_cast<double>(N * groups * 2);
}

// A norm of the residual stream: two per layer and one after the last, however the rows of the pass are divided.
bool is_stream_norm(const std::string& place, const std::string& name) {
  return place == "norm" && !has(name, "norm_rows");
}

// Sets flops and bytes of the measured pass, in which all kernels of stream norms together have stream_norms calls.
void add_work(LayerPart& part, const PassSizes& sizes, int stream_norms) {
  const ModelConfig& c = sizes.config;
  const auto e = static_cast<double>(sizes.number_bytes), T = static_cast<double>(sizes.rows);
  const auto D = static_cast<double>(c.hidden_size), E = static_cast<double>(c.head_dim);
  const auto H = static_cast<double>(c.num_attention_heads), K = static_cast<double>(c.num_key_value_heads);
  const auto layers = static_cast<double>(c.num_hidden_layers), calls = static_cast<double>(part.calls);
  // A norm or an activation may write codes for an fp8 product.
  const double out_bytes = has(part.name, "_quantize") ? 1 : e;
  const auto [n, k] = sizes.weight(part.place);
  if (part.M > 0) {
    const auto pm = static_cast<double>(part.M), pn = static_cast<double>(part.N), pk = static_cast<double>(part.K);
    const double in = has(part.name, "_scaled_mm") || has(part.name, "e4m3") ? 1 : e,
                 out = part.place == "head" ? 4 : e;
    part.flops = 2 * pm * pn * pk * calls;
    part.bytes = (in * (pm * pk + pk * pn) + out * pm * pn) * calls;
  } else if (is_own_product(part.name) && n > 0) {
    const bool head = part.place == "head";
    const double passes = head ? 1 : layers, rows = head ? static_cast<double>(sizes.head_rows) : T;
    const auto N = static_cast<double>(n), inputs = static_cast<double>(k);
    part.M = std::max<std::int64_t>(1, static_cast<std::int64_t>(rows * passes / calls));
    part.N = n;
    part.K = k;
    part.flops = 2 * rows * N * inputs * passes;
    part.bytes = weight_bytes(sizes, n, k, head) * calls + (rows * inputs * e + rows * N * (head ? 4 : e)) * passes;
  } else if (part.place == "attention" && has(part.name, "attention")) {
    part.flops = 4 * sizes.visible_keys * H * E * layers;
    part.bytes = (T * (2 * H + 2 * K) * E + static_cast<double>(sizes.cached_keys) * 2 * K * E) * e * layers;
  } else if (part.place == "norm") {
    const bool stream = is_stream_norm(part.place, part.name);
    const double each = stream ? 8 + e + out_bytes : 2 * e;
    part.bytes = T * D * each * (stream ? (2 * layers + 1) * calls / stream_norms : 2 * layers);
  } else if (part.place == "rotary") {
    part.bytes = T * E * e * (2 * (H + K) + (sizes.cached_keys > 0 ? 2 * K : 0)) * layers;
  } else if (part.place == "activation") {
    part.bytes = T * static_cast<double>(c.intermediate_size) * (2 * e + out_bytes) * layers;
  } else if (part.place == "embedding") {
    part.bytes = T * D * (e + 4);
  } else if (part.place == "reduction") {
    part.bytes = static_cast<double>(sizes.head_rows * c.vocab_size) * 4;
  } else if (has(part.name, "dequantize") && n > 0) {
    part.bytes = (weight_bytes(sizes, n, k, false) + static_cast<double>(n * k) * e) * calls;
  } else if (has(part.name, "quantize") && n > 0) {
    part.bytes = T * static_cast<double>(k) * (e + 1) * layers;
  }
}

using Key = std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::int64_t>;

double gaps_of(const std::vector<TimedCall>& calls) {
  double gaps = 0;
  for (std::size_t i = 1; i < calls.size(); ++i) gaps += std::max(0.0, calls[i].begin_ms - calls[i - 1].end_ms);
  return gaps;
}

}  // namespace

std::vector<std::string> places_of(const std::vector<TimedCall>& calls, const PassSizes& sizes) {
  Place place(sizes);
  std::vector<std::string> places;
  places.reserve(calls.size());
  for (const TimedCall& call : calls) places.push_back(place.next(call));
  return places;
}

LayerTimes layer_times(const std::vector<std::vector<TimedCall>>& passes, const PassSizes& sizes) {
  std::map<Key, std::pair<int, std::vector<double>>> found;  // calls in a pass, ms of every pass
  std::vector<double> gaps;
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    const std::vector<std::string> places = places_of(passes[pass], sizes);
    std::map<Key, std::pair<int, double>> sums;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const TimedCall& call = passes[pass][i];
      auto& [calls, ms] = sums[{places[i], call.name, call.M, call.N, call.K}];
      ++calls;
      ms += call.end_ms - call.begin_ms;
    }
    for (const auto& [key, sum] : sums) {
      auto& [calls, all] = found[key];
      calls = sum.first;
      all.resize(passes.size(), 0.0);
      all[pass] = sum.second;
    }
    gaps.push_back(gaps_of(passes[pass]));
  }
  const double layers = static_cast<double>(sizes.config.num_hidden_layers),
               more = static_cast<double>(sizes.all_layers) / layers,
               norms = (2 * static_cast<double>(sizes.all_layers) + 1) / (2 * layers + 1);
  int stream_norms = 0;
  for (const auto& [key, seen] : found) {
    if (is_stream_norm(std::get<0>(key), std::get<1>(key))) stream_norms += seen.first;
  }
  LayerTimes times;
  for (const auto& [key, seen] : found) {
    LayerPart part;
    std::tie(part.place, part.name, part.M, part.N, part.K) = key;
    part.calls = seen.first;
    part.measured_ms = median(seen.second);
    add_work(part, sizes, stream_norms);
    const double scale = !in_every_layer(part.place) ? 1 : part.place == "norm" ? norms : more;
    part.ms = part.measured_ms * scale;
    part.flops *= scale;
    part.bytes *= scale;
    times.ms += part.ms;
    times.parts.push_back(std::move(part));
  }
  times.gaps_ms = median(gaps) * more;
  times.ms += times.gaps_ms;
  std::sort(times.parts.begin(), times.parts.end(), [](const LayerPart& a, const LayerPart& b) { return a.ms > b.ms; });
  return times;
}

nlohmann::ordered_json layer_json(const LayerTimes& times) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const LayerPart& part : times.parts) {
    nlohmann::ordered_json entry = {{"part", part.place}, {"call", part.name}, {"calls", part.calls}};
    if (part.M > 0) entry.update({{"rows", part.M}, {"outputs", part.N}, {"inputs", part.K}});
    entry.update({{"ms", part.ms}, {"share", part.ms / times.ms}, {"measured_ms", part.measured_ms}});
    if (part.flops > 0 && part.ms > 0) entry["tflops"] = part.flops / part.ms * 1e-9;
    if (part.bytes > 0 && part.ms > 0) entry["gbs"] = part.bytes / part.ms * 1e-6;
    parts.push_back(std::move(entry));
  }
  return {{"ms", times.ms}, {"gaps_ms", times.gaps_ms}, {"gaps_share", times.gaps_ms / times.ms}, {"parts", parts}};
}

std::string layer_table(const nlohmann::ordered_json& result) {
  std::string text = fmt::format("{:<14} {:<28} {:>6} {:>24} {:>9} {:>7} {:>9} {:>8}\n", "part", "call", "calls",
                                 "rows x outputs x inputs", "ms", "share", "TFLOP/s", "GB/s");
  double rest_ms = 0;
  int rest_calls = 0;
  for (const auto& part : result.at("parts")) {
    const double share = part.at("share");
    if (share < 0.002) {
      rest_ms += part.at("ms").get<double>();
      rest_calls += part.at("calls").get<int>();
      continue;
    }
    const auto number = [&part](const char* key, int digits) {
      return part.contains(key) ? fmt::format("{:.{}f}", part.at(key).get<double>(), digits) : std::string("-");
    };
    const std::string shape = part.contains("rows") ? fmt::format("{} x {} x {}", part.at("rows").get<std::int64_t>(),
                                                                  part.at("outputs").get<std::int64_t>(),
                                                                  part.at("inputs").get<std::int64_t>())
                                                    : "-";
    text +=
        fmt::format("{:<14} {:<28} {:>6} {:>24} {:>9.3f} {:>6.1f}% {:>9} {:>8}\n", part.at("part").get<std::string>(),
                    part.at("call").get<std::string>(), part.at("calls").get<int>(), shape, part.at("ms").get<double>(),
                    100 * share, number("tflops", 2), number("gbs", 1));
  }
  const auto line = [&](const char* what, int calls, double ms) {
    const double whole = result.at("ms").get<double>();
    text += fmt::format("{:<14} {:<28} {:>6} {:>24} {:>9.3f} {:>6.1f}%\n", what, "", calls, "", ms, 100 * ms / whole);
  };
  if (rest_calls > 0) line("small ones", rest_calls, rest_ms);
  line("gaps", 0, result.at("gaps_ms").get<double>());
  for (const auto& [key, value] : result.items()) {
    if (key != "parts")
      text += fmt::format("{}: {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

}  // namespace magister
