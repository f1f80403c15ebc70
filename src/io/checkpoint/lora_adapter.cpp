// W + scale * B A, window by window, in strips of 64 rows: a strip takes 2 MB of f32 for 8192 inputs, in addition to
// the rows of A.
#include "magister/io/checkpoint/lora_adapter.h"

#include <ATen/ATen.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "io/checkpoint/lora_experts.h"
#include "io/checkpoint/lora_factors.h"
#include "io/checkpoint/mapped_tensors.h"
#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/checkpoint/cache_scales.h"
#include "magister/io/checkpoint/safetensors_writer.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStripRows = 64;
constexpr std::string_view kPrefix = "base_model.model.", kWeight = ".weight";

// The layer in a factor's name; empty if it is not a factor's name.
std::string layer_of(const std::string& name, char factor) {
  const std::string end = fmt::format(".lora_{}.weight", factor);
  if (!name.starts_with(kPrefix) || !name.ends_with(end) || name.size() <= kPrefix.size() + end.size()) return "";
  return name.substr(kPrefix.size(), name.size() - kPrefix.size() - end.size());
}

std::string last_name(const fs::path& path) {
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// Adds to `count` vectors of 8 columns of a weight's row; `a` points to the same columns of A.
template <int count>
void add_columns(float* weight, const float* b, const float* a, std::int64_t rank, std::int64_t width, float scale) {
  __m256 sum[count];
  for (int i = 0; i < count; ++i) sum[i] = _mm256_setzero_ps();
  for (std::int64_t r = 0; r < rank; ++r) {
    const __m256 factor = _mm256_broadcast_ss(b + r);
    for (std::int64_t i = 0; i < count; ++i)
      sum[i] = _mm256_fmadd_ps(factor, _mm256_loadu_ps(a + r * width + i * 8), sum[i]);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    _mm256_storeu_ps(weight + i * 8, _mm256_fmadd_ps(_mm256_set1_ps(scale), sum[i], _mm256_loadu_ps(weight + i * 8)));
  }
}

}  // namespace

std::string lora_base_sha256(const std::string& adapter_folder) {
  for (const auto& [name, text] : safetensors_metadata(lora_paths(adapter_folder).back())) {
    if (name == kLoraBaseKey) return text;
  }
  return "";
}

bool may_be_base(const std::string& base_model, const std::string& model_path) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(model_path, error), base = fs::weakly_canonical(base_model, error);
  if (path == base) return true;
  std::string in_cache = "models--" + base_model;
  for (std::size_t at = in_cache.find('/'); at != std::string::npos; at = in_cache.find('/'))
    in_cache.replace(at, 1, "--");
  return std::any_of(path.begin(), path.end(),
                     [&](const fs::path& name) { return name == last_name(base_model) || name == in_cache; });
}

// The loop over columns is outside, so that the columns of A stay in the L1 cache for all rows of a strip.
void add_lora_product(at::Tensor& weight_NK, const at::Tensor& b_NR, const at::Tensor& a_RK, float scale) {
  const std::int64_t N = weight_NK.size(0), K = a_RK.size(1), R = a_RK.size(0);
  float* const weight = weight_NK.data_ptr<float>();
  const float *const b = b_NR.const_data_ptr<float>(), *const a = a_RK.const_data_ptr<float>();
  std::int64_t k = 0;
  for (; k + 32 <= K; k += 32) {
    for (std::int64_t n = 0; n < N; ++n) add_columns<4>(weight + n * K + k, b + n * R, a + k, R, K, scale);
  }
  for (; k + 8 <= K; k += 8) {
    for (std::int64_t n = 0; n < N; ++n) add_columns<1>(weight + n * K + k, b + n * R, a + k, R, K, scale);
  }
  for (; k < K; ++k) {
    for (std::int64_t n = 0; n < N; ++n) {
      float sum = 0;
      for (std::int64_t r = 0; r < R; ++r) sum = std::fma(b[n * R + r], a[r * K + k], sum);
      weight[n * K + k] = std::fma(scale, sum, weight[n * K + k]);
    }
  }
}

namespace {

class MergedFile final : public TensorFile {
 public:
  MergedFile(std::unique_ptr<TensorFile> model, const std::string& folder, std::set<std::string> inputs_first)
      : model_(std::move(model)),
        inputs_first_(std::move(inputs_first)),
        config_(read_lora_config(folder)),
        factors_(folder),
        paths_(model_->paths()) {
    for (std::string& path : lora_paths(folder)) paths_.push_back(std::move(path));
    std::vector<const TensorInfo*> of_cache;
    for (const TensorInfo& info : factors_.file().tensors()) {
      if (is_cache_scale(info))
        of_cache.push_back(&info);
      else
        take(info);
    }
    if (!of_cache.empty())
      log_info("{}: {}", printable(paths_.back()), describe_cache_scales(of_cache.size(), of_cache.front()->name));
    MAGISTER_CHECK(!config_.fan_in_fan_out || !inputs_first_.empty(), ExitCode::kData,
                   "{}: fan_in_fan_out is true (the model's weights are not stored as [in, out]: the adapter is of "
                   "another model{}); name the model that it was trained on",
                   printable(config_.path), of_base());
    MAGISTER_CHECK(!merged_.empty(), ExitCode::kData,
                   "{}: holds no tensors (the adapter would change nothing); remove model.adapter",
                   printable(paths_.back()));
    std::set<std::string> checked;
    for (const auto& [tensor, change] : merged_) {
      if (checked.insert(change.layer).second) check_layer(*model_->find(tensor), change);
    }
    check_targets();
  }

  const std::vector<TensorInfo>& tensors() const override { return model_->tensors(); }
  const Metadata& metadata() const override { return model_->metadata(); }
  const std::vector<std::string>& paths() const override { return paths_; }
  bool dequantizes() const override { return model_->dequantizes(); }

  std::optional<CodeFormat> code_format(const std::string& name) const override {
    return merged_.contains(name) ? std::nullopt : model_->code_format(name);
  }
  void read_codes(const std::string& name, IndexRange rows, IndexRange columns, const CodeWindow& out) const override {
    model_->read_codes(name, rows, columns, out);
  }

  void read(const std::string& name, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
            std::int64_t column_end, at::Tensor out) const override {
    const auto found = merged_.find(name);
    if (found == merged_.end() || row_begin == row_end || column_begin == column_end)
      return model_->read(name, row_begin, row_end, column_begin, column_end, std::move(out));
    const TensorInfo& info = *model_->find(name);
    const std::int64_t columns = info.shape.back(),
                       rows = info.shape.front() * (info.shape.size() == 3 ? info.shape[1] : 1);
    check_window(name, rows, columns, {row_begin, row_end, column_begin, column_end}, out);
    const LoraChange& change = found->second;
    for (std::int64_t row = row_begin; row < row_end;) {  // the rows of one expert at a time
      const std::int64_t a_row = change.rows_a_expert, part = a_row == 0 ? 0 : row / a_row;
      const std::int64_t end = a_row == 0 ? row_end : std::min(row_end, (part + 1) * a_row);
      const LoraWindow factors = factors_.window(change, change.expert + part,
                                                 {row - part * a_row, end - part * a_row, column_begin, column_end});
      add(name, change.scale, factors, {row, end, column_begin, column_end}, out.narrow(0, row - row_begin, end - row));
      row = end;
    }
  }

 private:
  void add(const std::string& name, float scale, const LoraWindow& factors, const TensorWindow& window,
           const at::Tensor& out) const {
    const std::int64_t K = window.column_end - window.column_begin;
    for (std::int64_t row = window.row_begin; row < window.row_end; row += kStripRows) {
      const std::int64_t rows = std::min(kStripRows, window.row_end - row), at_row = row - window.row_begin;
      at::Tensor weight_NK = at::empty({rows, K}, at::kFloat);
      model_->read(name, row, row + rows, window.column_begin, window.column_end, weight_NK);
      add_lora_product(weight_NK, factors.b_NR.narrow(0, at_row, rows), factors.a_RK, scale);
      out.narrow(0, at_row, rows).copy_(weight_NK);
    }
  }

  // Some files prefix a family's names with `model.`, GPT-2's with `transformer.`, and some have no prefix.
  std::string tensor_of(const std::string& layer) const {
    std::vector<std::string> names = {layer + std::string(kWeight)};
    // Routers: transformers' modules have other names than files of some families.
    if (std::string other = with_other_block(names.front()); !other.empty()) names.push_back(std::move(other));
    if (layer.ends_with(".router")) names.push_back(layer + ".layer" + std::string(kWeight));
    for (const std::string& name : names) {
      if (model_->find(name) != nullptr) return name;
      for (const std::string prefix : {"model.", "transformer."}) {
        if (model_->find(prefix + name) != nullptr) return prefix + name;
        if (name.starts_with(prefix) && model_->find(name.substr(prefix.size())) != nullptr)
          return name.substr(prefix.size());
      }
    }
    return "";
  }

  // PEFT's name of what the factors of a layer change: that of the layer, or of its parameter if this is what it was
  // told to change.
  std::string key_of(const std::string& layer) const {
    const std::string parameter = layer + std::string(kWeight);
    const bool named = std::any_of(config_.target_parameters.begin(), config_.target_parameters.end(),
                                   [&](const std::string& target) { return ends_with_names(parameter, target); });
    return named ? parameter : layer;
  }

  static bool ends_with_names(const std::string& name, const std::string& end) {
    return name == end || name.ends_with("." + end);
  }

  void take(const TensorInfo& info) {
    const std::string a = layer_of(info.name, 'A'), b = layer_of(info.name, 'B'), layer = a.empty() ? b : a;
    const std::string where = fmt::format("{}: tensor {}", printable(paths_.back()), printable(info.name));
    MAGISTER_CHECK(
        !layer.empty(), ExitCode::kData,
        "{} is no factor of a linear layer (base_model.model.<layer>.lora_A.weight or lora_B.weight; results "
        "without it would be wrong); merge the adapter with PEFT's merge_and_unload and name the merged "
        "model's folder",
        where);
    const char other = a.empty() ? 'A' : 'B';
    MAGISTER_CHECK(factors_.file().find(lora_tensor_name(layer, other)) != nullptr, ExitCode::kData,
                   "{} has no lora_{} for its layer (a layer's change is the product of both); fetch the adapter again",
                   where, other);
    if (names_experts(layer)) return take_experts(layer, where);
    const std::string tensor = tensor_of(layer);
    MAGISTER_CHECK(
        !tensor.empty(), ExitCode::kData,
        "{} changes a layer that the model does not have (the adapter is of another model{}); name the model "
        "that it was trained on",
        where, of_base());
    LoraChange change;
    change.layer = layer;
    change.key = key_of(layer);
    change.inputs_first = inputs_first_.contains(tensor);
    put(tensor, std::move(change), where);
  }

  void take_experts(const std::string& layer, const std::string& where) {
    const TensorInfo &a = *factors_.file().find(lora_tensor_name(layer, 'A')),
                     &b = *factors_.file().find(lora_tensor_name(layer, 'B'));
    MAGISTER_CHECK(a.shape.size() == 2 && b.shape.size() == 2, ExitCode::kData,
                   "{} [{}] or its lora_{} is no matrix (PEFT stacks the factors of experts as matrices); fetch the "
                   "adapter again",
                   where, fmt::join(a.shape, ", "), 'B');
    const std::vector<ExpertTensor> tensors = tensors_of_experts(*model_, layer, a, b);
    MAGISTER_CHECK(!tensors.empty(), ExitCode::kData,
                   "{} changes experts with {} inputs and {} outputs, which the model does not have (the adapter is of "
                   "another model{}); name the model that it was trained on",
                   where, a.shape[1], b.shape[0], of_base());
    for (const ExpertTensor& tensor : tensors) put(tensor.name, tensor.change, where);
  }

  void put(const std::string& tensor, LoraChange change, const std::string& where) {
    change.rank = config_.rank_of(change.key);
    change.scale = static_cast<float>(config_.scale_of(change.key));
    const auto [found, is_new] = merged_.try_emplace(tensor, std::move(change));
    MAGISTER_CHECK(is_new || found->second.layer == change.layer, ExitCode::kData,
                   "{} changes {}, which {} changes, too (two changes of one weight are not merged); merge the adapter "
                   "with PEFT's merge_and_unload and name the merged model's folder",
                   where, printable(tensor), printable(found->second.layer));
  }

  // ": NAME" of the model that the adapter's config names.
  std::string of_base() const { return config_.base_model.empty() ? "" : ": " + printable(config_.base_model, 200); }

  void check_layer(const TensorInfo& weight, const LoraChange& change) const {
    for (const char factor : {'A', 'B'}) {
      const TensorInfo& info = *factors_.file().find(lora_tensor_name(change.layer, factor));
      const std::string where = fmt::format("{}: tensor {}", printable(paths_.back()), printable(info.name));
      const bool floats =
          info.type == StorageType::kF32 || info.type == StorageType::kF16 || info.type == StorageType::kBF16;
      MAGISTER_CHECK(floats && info.shape.size() == 2, ExitCode::kData,
                     "{} is {} [{}] (a factor is a matrix of f32, f16 or bf16); save the adapter again with PEFT",
                     where, to_string(info.type), fmt::join(info.shape, ", "));
      const std::int64_t rank = info.shape[factor == 'A' ? 0 : 1], width = info.shape[factor == 'A' ? 1 : 0];
      MAGISTER_CHECK(rank == change.rank * change.experts, ExitCode::kData,
                     "{} has rank {}, but {} says {} (its scale would be wrong); fetch both files again", where, rank,
                     printable(config_.path), said_rank(change));
      const bool of_columns = (factor == 'A') != change.inputs_first;
      const bool stacked = names_experts(change.layer);  // tensors_of_experts() has compared the shapes
      MAGISTER_CHECK(
          stacked || (weight.shape.size() == 2 && width == weight.shape[of_columns ? 1 : 0]), ExitCode::kData,
          "{} [{}] does not fit the model's {} [{}] (the adapter is of another model{}); name the model that "
          "it was trained on",
          where, fmt::join(info.shape, ", "), printable(weight.name), fmt::join(weight.shape, ", "), of_base());
      at::Tensor values = at::empty({info.shape[0], info.shape[1]}, at::kFloat);
      factors_.file().read(info.name, 0, info.shape[0], 0, info.shape[1], values);
      MAGISTER_CHECK(at::isfinite(values.sum(at::kDouble)).item<bool>(), ExitCode::kData,
                     "{} holds a number that is not finite (every result would be NaN); train the adapter again",
                     where);
    }
  }

  std::string said_rank(const LoraChange& change) const {
    const std::string rank = change.rank == config_.rank ? fmt::format("r: {}", change.rank)
                                                         : fmt::format("{} for {}", change.rank, printable(change.key));
    return change.experts == 1 ? rank : fmt::format("{} for each of {} experts", rank, change.experts);
  }

  // Every layer that target_modules names must have factors: with layers missing the results would look sound and be
  // wrong.
  void check_targets() const {
    const std::set<std::string> targets(config_.targets.begin(), config_.targets.end());
    for (const TensorInfo& info : model_->tensors()) {
      if (merged_.contains(info.name)) continue;
      for (const std::string& parameter : module_parameters(info.name)) {
        for (const std::string& target : config_.target_parameters)
          refuse_missing(!ends_with_names(parameter, target), "target_parameters", target, info.name);
      }
      // Experts are not linear layers in transformers' modules.
      if (!info.name.ends_with(kWeight) || info.name.find(".experts.") != std::string::npos) continue;
      const std::string layer = info.name.substr(0, info.name.size() - kWeight.size());
      for (std::size_t begin = 0, dot = 0; dot != std::string::npos; begin = dot + 1) {
        dot = layer.find('.', begin);
        refuse_missing(!targets.contains(layer.substr(begin)), "target_modules", layer.substr(begin), layer);
      }
    }
  }

  void refuse_missing(bool good, const char* key, const std::string& target, const std::string& layer) const {
    MAGISTER_CHECK(good, ExitCode::kData,
                   "{}: {} names {}, but {} has no part for the layer {} (files of two adapters, or of "
                   "another model); fetch the adapter again",
                   printable(config_.path), key, printable(target), printable(paths_.back()), printable(layer));
  }

  std::unique_ptr<TensorFile> model_;
  std::set<std::string> inputs_first_;
  LoraConfig config_;
  LoraFactors factors_;
  std::vector<std::string> paths_;
  std::map<std::string, LoraChange> merged_;  // by tensor of the model
};

}  // namespace

std::vector<std::string> lora_paths(const std::string& adapter_folder) {
  const fs::path folder = adapter_folder;
  return {(folder / "adapter_config.json").string(), (folder / "adapter_model.safetensors").string()};
}

std::string lora_tensor_name(const std::string& layer, char factor) {
  return fmt::format("{}{}.lora_{}.weight", kPrefix, layer, factor);
}

std::unique_ptr<TensorFile> open_merged(std::unique_ptr<TensorFile> model, const std::string& adapter_folder,
                                        std::set<std::string> inputs_first) {
  return std::make_unique<MergedFile>(std::move(model), adapter_folder, std::move(inputs_first));
}

}  // namespace magister
