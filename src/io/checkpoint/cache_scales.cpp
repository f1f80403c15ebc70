#include "magister/io/checkpoint/cache_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::int64_t kMostNumbers = 65536;  // one number, or one per head
constexpr std::string_view kOfAttention[] = {"k_scale",      "v_scale",      "q_scale",     "kv_scale",
                                             "k_zero_point", "v_zero_point", "prob_scale",  "prob_output_scale",
                                             "k_bmm_scale",  "v_bmm_scale",  "q_bmm_scale", "attn_scale"};
constexpr std::string_view kOfProducts[] = {"output_scale", "output_zero_point"};
constexpr std::string_view kProducts[] = {"k_proj", "v_proj", "q_proj", "qkv_proj", "query_key_value"};

// Removes the last part of a dotted name and returns it.
std::string_view cut_last(std::string_view& name) {
  const std::size_t dot = name.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? name : name.substr(dot + 1);
  name = dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
  return last;
}

template <typename Names>
bool among(std::string_view name, const Names& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

bool is_cache_scale(const TensorInfo& info) {
  std::int64_t numbers = 1;
  for (const std::int64_t size : info.shape) numbers = numbers > kMostNumbers ? numbers : numbers * size;
  if (numbers < 1 || numbers > kMostNumbers) return false;
  std::string_view rest = info.name;
  const std::string_view last = cut_last(rest);
  if (among(last, kOfProducts)) return among(cut_last(rest), kProducts);
  return among(last, kOfAttention) && rest.find("attn") != std::string_view::npos;
}

bool quantizes_cache_alone(const nlohmann::json& quantization_config) {
  using nlohmann::json;
  if (!quantization_config.is_object() || quantization_config.value("quant_method", json()) != "compressed-tensors")
    return false;
  const json cache = quantization_config.value("kv_cache_scheme", json()),
             groups = quantization_config.value("config_groups", json());
  return cache.is_object() && (groups.is_null() || (groups.is_object() && groups.empty()));
}

std::string describe_cache_scales(std::size_t count, const std::string& first) {
  return fmt::format(
      "{} scale{} of a cache of few bits, {} {}, {} left out (keys and values are kept as they are computed)", count,
      count == 1 ? "" : "s", count == 1 ? "which is" : "the first of them", printable(first),
      count == 1 ? "is" : "are");
}

}  // namespace magister
