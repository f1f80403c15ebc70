// Reads the config's keys by method. An unknown value that changes the numbers is refused; keys about the making of the
// file (calibration data, damping, versions) are ignored.
#include "io/checkpoint/quantization_config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/io/checkpoint/cache_scales.h"

namespace magister {
namespace {

using nlohmann::json;
constexpr std::uint64_t kMaxBytes = 1 << 20;

class Reader {
 public:
  Reader(std::string path, json root) : root_(std::move(root)) { out_.path = std::move(path); }

  QuantizationConfig read() {
    MAGISTER_CHECK(root_.is_object(), ExitCode::kData,
                   "{}: quantization_config is {} (an object must be there); fetch the config again",
                   printable(out_.path), root_.type_name());
    const std::string method =
        text(root_, "quant_method",
             root_.value("load_in_8bit", json()) == true || root_.value("load_in_4bit", json()) == true ? "bitsandbytes"
                                                                                                        : "");
    if (method == "gptq") {
      read_gptq();
    } else if (method == "awq") {
      read_awq();
    } else if (method == "compressed-tensors") {
      read_compressed_tensors();
    } else if (method == "fp8") {
      out_.method = QuantMethod::kFp8;
      if (root_.contains("weight_block_size") && !root_["weight_block_size"].is_null())
        read_block(root_["weight_block_size"]);
    } else if (method == "bitsandbytes") {
      out_.method = QuantMethod::kBitsAndBytes;
    } else if (method == "mxfp4") {
      out_.method = QuantMethod::kMxfp4;
    } else {
      fail(ExitCode::kData,
           "{}: quantization_config.quant_method is \"{}\" (its weights cannot be read here; gptq, awq, "
           "compressed-tensors, fp8, bitsandbytes and mxfp4 can); use the model in 16 bits or in one of these",
           printable(out_.path), printable(method, 60));
    }
    return out_;
  }

 private:
  std::string text(const json& object, const char* key, const std::string& fallback) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return fallback;
    MAGISTER_CHECK(found->is_string(), ExitCode::kData,
                   "{}: quantization_config's {} is {} (a text must be there); fetch the config again",
                   printable(out_.path), key, found->type_name());
    return found->get<std::string>();
  }

  std::optional<std::int64_t> integer(const json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return std::nullopt;
    const bool fits =
        found->is_number_integer() && (!found->is_number_unsigned() || found->get<std::uint64_t>() < (1u << 30));
    MAGISTER_CHECK(
        fits && found->get<std::int64_t>() >= -1 && found->get<std::int64_t>() < (1 << 30), ExitCode::kData,
        "{}: quantization_config's {} is {} (a whole number from -1 to 2^30 must be there); fetch the config again",
        printable(out_.path), key, printable(found->dump(), 40));
    return found->get<std::int64_t>();
  }

  bool boolean(const json& object, const char* key, bool fallback) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return fallback;
    MAGISTER_CHECK(found->is_boolean(), ExitCode::kData,
                   "{}: quantization_config's {} is {} (true or false must be there); fetch the config again",
                   printable(out_.path), key, found->type_name());
    return found->get<bool>();
  }

  void add_sizes(const json& object, const char* bits_key) {
    const auto bits = integer(object, bits_key);
    if (bits) out_.bits.push_back(*bits);
    const auto group = integer(object, "group_size");
    if (group && *group > 0) out_.group_sizes.push_back(*group);
  }

  void refuse_bits(std::initializer_list<std::int64_t> known) const {
    for (const std::int64_t bits : out_.bits) {
      MAGISTER_CHECK(std::find(known.begin(), known.end(), bits) != known.end(), ExitCode::kData,
                     "{}: quantization_config says {} bits (this method is read with {} here); use another checkpoint",
                     printable(out_.path), bits, fmt::join(known, " or "));
    }
  }

  void read_gptq() {
    out_.method = QuantMethod::kGptq;
    add_sizes(root_, "bits");
    read_dynamic();
    refuse_bits({2, 4, 8});
    out_.symmetric = boolean(root_, "sym", false);
    const std::string format = text(root_, "checkpoint_format", "gptq");
    MAGISTER_CHECK(
        format == "gptq" || format == "gptq_v2", ExitCode::kData,
        "{}: quantization_config.checkpoint_format is \"{}\" "
        "(only gptq and gptq_v2 are interchange formats; marlin and others are a kernel's own); use such a checkpoint",
        printable(out_.path), printable(format, 60));
    out_.stored_zero_is_true = format == "gptq_v2";
  }

  // GPTQModel's map from expressions to the settings of the modules that match them; "-:" marks modules that are not
  // quantised. The tensors show which module has which settings.
  void read_dynamic() {
    const auto dynamic = root_.find("dynamic");
    if (dynamic == root_.end() || !dynamic->is_object()) return;
    for (const auto& [expression, own] : dynamic->items()) {
      if (own.is_object() && !expression.starts_with("-:")) add_sizes(own, "bits");
    }
  }

  void read_awq() {
    out_.method = QuantMethod::kAwq;
    add_sizes(root_, root_.contains("w_bit") ? "w_bit" : "bits");
    if (const auto group = integer(root_, "q_group_size"); group && *group > 0) out_.group_sizes.push_back(*group);
    refuse_bits({4});
    std::string version = text(root_, "version", "gemm");
    std::transform(version.begin(), version.end(), version.begin(), [](unsigned char c) { return std::tolower(c); });
    MAGISTER_CHECK(version == "gemm", ExitCode::kData,
                   "{}: quantization_config.version is \"{}\" (only AWQ's gemm layout is read); "
                   "use such a checkpoint",
                   printable(out_.path), printable(version, 60));
  }

  void read_block(const json& block) {
    const bool two =
        block.is_array() && block.size() == 2 && block[0].is_number_unsigned() && block[1].is_number_unsigned();
    MAGISTER_CHECK(two && block[0].get<std::uint64_t>() - 1 < 65536 && block[1].get<std::uint64_t>() - 1 < 65536,
                   ExitCode::kData,
                   "{}: quantization_config names blocks of {} (two numbers from 1 to 65536 must be there); fetch the "
                   "config again",
                   printable(out_.path), printable(block.dump(), 60));
    const WeightBlock found{block[0].get<std::int64_t>(), block[1].get<std::int64_t>()};
    if (std::find(out_.blocks.begin(), out_.blocks.end(), found) == out_.blocks.end()) out_.blocks.push_back(found);
  }

  void read_compressed_tensors() {
    out_.method = QuantMethod::kCompressedTensors;
    const std::string format = text(root_, "format", "dense");
    const bool known = format == "pack-quantized" || format == "int-quantized" || format == "float-quantized" ||
                       format == "naive-quantized" || format == "mixed-precision";
    MAGISTER_CHECK(known, ExitCode::kData,
                   "{}: quantization_config.format is \"{}\" (of compressed-tensors pack-quantized, "
                   "int-quantized, float-quantized and naive-quantized are read); use such a checkpoint",
                   printable(out_.path), printable(format, 60));
    MAGISTER_CHECK(
        !root_.contains("transform_config") || root_["transform_config"].empty(), ExitCode::kData,
        "{}: quantization_config has a transform_config (rotated weights are not computed here); use another "
        "checkpoint",
        printable(out_.path));
    const auto groups = root_.find("config_groups");
    if (groups == root_.end() || !groups->is_object()) return;
    for (const auto& [name, group] : groups->items()) {
      if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) continue;
      const json& weights = group["weights"];
      add_sizes(weights, "num_bits");
      if (weights.contains("block_structure") && !weights["block_structure"].is_null())
        read_block(weights["block_structure"]);
    }
    refuse_bits({4, 8});
  }

  json root_;
  QuantizationConfig out_;
};

}  // namespace

std::optional<QuantizationConfig> read_quantization_config(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "config.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || std::filesystem::file_size(path, error) > kMaxBytes)
    return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  const json root = json::parse(file, nullptr, false);
  if (!root.is_object()) return std::nullopt;
  const auto found = root.find("quantization_config");
  const auto old = root.find("compression_config");  // compressed-tensors' older name of the key
  const json& config = found != root.end() && !found->is_null() ? *found : old != root.end() ? *old : root;
  if (&config == &root || config.is_null() || config == false || (config.is_structured() && config.empty()))
    return std::nullopt;
  if (quantizes_cache_alone(config)) return std::nullopt;
  return Reader(path.string(), config).read();
}

}  // namespace magister
