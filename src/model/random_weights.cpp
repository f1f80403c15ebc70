// Every tensor has a key of its own, derived from seed and name; a number depends on the key and its position.
#include "magister/model/random_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "magister/core/error.h"
#include "magister/core/splitmix64.h"
#include "magister/model/parameter_table.h"

namespace magister {
namespace {

class RandomWeights final : public TensorFile {
 public:
  RandomWeights(const ModelDescription& description, std::uint64_t seed) : seed_(seed) {
    const ModelConfig& config = description.config;
    const double range = config.initializer_range, norm = config.norm_weights_plus_one ? 0.0 : 1.0;
    // Biases are the only vectors that are not weights of norms.
    const auto first = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
      return shape.size() > 1 ? First{range, 0} : First{0, name.ends_with("bias") ? 0 : norm};
    };
    for (const ModelParameter& row : model_parameters(config)) {
      const std::string& name = row.name_in(description.names);
      add(name, row.shape, first(name, row.shape));
    }
    for (std::size_t layer = 0; layer < description.names.layers.size(); ++layer) {
      for (const LayerParameter& row : layer_parameters(config, static_cast<std::int64_t>(layer))) {
        if (row.first_row > 0 || row.first_column > 0) continue;  // another row has added this tensor
        const std::string& name = row.name_in(description.names.layers[layer]);
        First values = first(name, row.shape);
        const bool adds = row.product == FusedProduct::kOutput || row.product == FusedProduct::kDown;
        if (adds && config.narrow_residuals)
          values.deviation /= std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
        if (row.name == &TensorNames::Layer::sinks || row.name == &TensorNames::Layer::router_bias) values = {range, 0};
        // The logarithms by which softplus() gives 0.8 and 0.3, as transformers begins.
        if (row.name == &TensorNames::Layer::xielu_alpha_p) values = {0, std::log(std::expm1(0.8))};
        if (row.name == &TensorNames::Layer::xielu_alpha_n) values = {0, std::log(std::expm1(0.3))};
        // Rates of decay up to 16, as transformers begins.
        if (row.name == &TensorNames::Layer::delta_rate) values = {0, 0, 16};
        if (row.name == &TensorNames::Layer::delta_bias || row.name == &TensorNames::Layer::delta_norm) values = {0, 1};
        add(name, row.shape_in(description.names), values);
      }
    }
    std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const Metadata& metadata() const override { return metadata_; }
  const std::vector<std::string>& paths() const override { return paths_; }

  void read(const std::string& name, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
            std::int64_t column_end, at::Tensor out) const override {
    const TensorInfo* const info = find(name);
    MAGISTER_ASSERT(info != nullptr);
    const First& first = first_.at(name);
    if (first.deviation == 0 && first.most_of_log == 0) {
      out.fill_(first.value);
      return;
    }
    const std::uint64_t key = splitmix64(seed_ ^ hash_of(name));
    const auto number = [&](std::uint64_t own) {
      return first.most_of_log > 0 ? std::log(first.most_of_log * uniform_number(own))
                                   : first.deviation * normal_number(own);
    };
    const auto width = static_cast<std::uint64_t>(info->shape.back());
    at::Tensor values = at::empty({row_end - row_begin, column_end - column_begin}, at::kFloat);
    float* value = values.data_ptr<float>();
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      for (std::int64_t column = column_begin; column < column_end; ++column)
        *value++ = static_cast<float>(
            number(key + static_cast<std::uint64_t>(row) * width + static_cast<std::uint64_t>(column)));
    }
    out.copy_(values);
  }

 private:
  // Initial values of a tensor: normal numbers with this standard deviation; if it is 0, all are `value`, or the
  // logarithms of uniform numbers up to `most_of_log` if that is not 0.
  struct First {
    double deviation, value, most_of_log = 0;
  };
  void add(const std::string& name, const std::vector<std::int64_t>& shape, const First& first) {
    if (name.empty()) return;
    first_.emplace(name, first);
    tensors_.push_back({name, shape, StorageType::kF32, 4 * num_elements(shape)});
  }
  // FNV-1a.
  static std::uint64_t hash_of(const std::string& name) {
    std::uint64_t hash = 0xcbf29ce484222325ull;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    return hash;
  }

  std::uint64_t seed_;
  std::map<std::string, First> first_;
  std::vector<TensorInfo> tensors_;
  Metadata metadata_;
  std::vector<std::string> paths_;
};

}  // namespace

std::unique_ptr<TensorFile> random_weights(const ModelDescription& description, std::uint64_t seed) {
  return std::make_unique<RandomWeights>(description, seed);
}

}  // namespace magister
