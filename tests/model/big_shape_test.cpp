// A layer pair of Llama-3.1 70B, every width as in the real model, over four CPU shards: equal to the same on one. What only
// large shapes show (sizes beyond 32 bits, uneven panels, 64 heads on 8 KV heads over shards) shows here. 8 GB while it runs.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "model/families/family.h"

namespace magister {
namespace {

// Numbers by position: any slice of any tensor without storing one. Uniform with the deviation 1 / sqrt(columns); norms are 1.
class RandomTensorFile : public TensorFile {
 public:
  explicit RandomTensorFile(const ModelDescription& description) {
    for (const ExpectedTensor& tensor : expected_tensors(description.config, description.names)) {
      infos_.push_back({tensor.name, tensor.shape, StorageType::kF32, 0});
    }
    std::sort(infos_.begin(), infos_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const Metadata& metadata() const override { return metadata_; }
  const std::vector<std::string>& paths() const override { return paths_; }
  void read(const std::string& name, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin, std::int64_t column_end,
            at::Tensor out) const override {
    const TensorInfo& info = *find(name);
    if (info.shape.size() == 1) {
      out.fill_(1);
      return;
    }
    const std::int64_t columns = info.shape[1], width = column_end - column_begin;
    const auto seed = static_cast<std::uint32_t>(std::hash<std::string>()(name));
    const float scale = std::sqrt(12.0f / static_cast<float>(columns));
    at::Tensor line = at::empty({1, width}, at::kFloat);
    float* const values = line.data_ptr<float>();
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      const std::uint32_t first = seed + static_cast<std::uint32_t>(row) * 0x9E3779B9u + static_cast<std::uint32_t>(column_begin);
      for (std::int64_t i = 0; i < width; ++i) values[i] = scale * uniform(first + static_cast<std::uint32_t>(i));
      out.narrow(0, row - row_begin, 1).copy_(line);
    }
  }

 private:
  // MurmurHash3's last mixing step -> [-0.5, 0.5).
  static float uniform(std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return static_cast<float>(static_cast<std::int32_t>(x ^ (x >> 16)) >> 8) * 0x1p-24f;
  }
  std::vector<TensorInfo> infos_;
  Metadata metadata_;
  std::vector<std::string> paths_;
};

ModelDescription llama_70b_with_two_layers() {
  ModelDescription description;
  ModelConfig& config = description.config;
  config.family = "llama";
  config.vocab_size = 128256;
  config.hidden_size = 8192;
  config.intermediate_size = 28672;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 64;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.max_position_embeddings = 131072;
  config.rms_norm_eps = 1e-5;
  config.rope.theta = 500000;
  description.names = hf_tensor_names(config);
  return description;
}

struct Answer {
  at::Tensor hidden_TD, logits_TV;
  std::uint64_t weight_bytes = 0;
};

Answer run(const ModelDescription& description, const TensorFile& file, ProcessGroup& group) {
  ThreadPool pool(1);
  Transformer model(description, file, group, pool, at::kBFloat16);
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 24; ++i) tokens.push_back((i * 7919 + 128000) % 128256);
  Answer answer{model.forward(pack_sequences({tokens})), {}, model.weight_bytes()};
  answer.logits_TV = model.logits(answer.hidden_TD).clone();
  return answer;
}

TEST(BigShape, FourShardsEqualOne) {
  const ModelDescription description = llama_70b_with_two_layers();
  const RandomTensorFile file(description);
  auto groups = make_thread_process_groups(4);
  std::vector<Answer> parts(4);
  std::vector<std::thread> threads;
  for (std::size_t s = 0; s < 4; ++s) threads.emplace_back([&, s] { parts[s] = run(description, file, *groups[s]); });
  for (std::thread& thread : threads) thread.join();
  std::vector<at::Tensor> logits;
  for (std::size_t s = 0; s < 4; ++s) {
    EXPECT_EQ(parts[s].weight_bytes, weight_bytes(description.config, at::kBFloat16, static_cast<int>(s), 4));
    logits.push_back(parts[s].logits_TV);
  }
  const Answer whole = run(description, file, *make_single_process_group());
  EXPECT_GT(whole.weight_bytes, 7'500'000'000u);
  EXPECT_LT(parts[0].weight_bytes, whole.weight_bytes / 4 + whole.weight_bytes / 100);
  EXPECT_LT((parts[0].hidden_TD - whole.hidden_TD).abs().max().item<float>(), 1e-3);
  EXPECT_LT((at::cat(logits, 1) - whole.logits_TV).abs().max().item<float>(), 1e-3);
  // The numbers mean something: rows differ, and none is flat.
  EXPECT_GT((whole.hidden_TD[0] - whole.hidden_TD[23]).abs().max().item<float>(), 0.1);
  EXPECT_GT(whole.logits_TV.std().item<float>(), 0.1);
}

}  // namespace
}  // namespace magister
