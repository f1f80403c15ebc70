// The sums over the shards of a GPU group, on the host: f32 all the way from the products to the residual stream, in
// passes of prompts and of texts, and as close to a plain pass in f32 as one shard.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "magister/device/launch_watch.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"
#include "model/random_weights_of.h"

namespace magister {
namespace gpu_shards_test {

// Another group, and the types of what is added in it.
class WatchedGroup final : public ProcessGroup {
 public:
  WatchedGroup(ProcessGroup& group, bool fast)
      : ProcessGroup(group.tp_rank(), group.tp_size()), group_(group), fast_(fast) {}
  std::string backend() const override { return fast_ ? "nccl, fast" : "nccl"; }
  void all_reduce_sum(at::Tensor& tensor) override {
    types.insert(tensor.scalar_type());
    ++sums;
    group_.all_reduce_sum(tensor);
  }
  at::Tensor all_gather(const at::Tensor& shard) override { return group_.all_gather(shard); }
  at::Tensor reduce_scatter(const at::Tensor& tensor) override { return group_.reduce_scatter(tensor); }
  void broadcast(at::Tensor& tensor, int root) override { group_.broadcast(tensor, root); }
  void barrier() override { group_.barrier(); }
  std::set<at::ScalarType> types;
  int sums = 0;

 private:
  ProcessGroup& group_;
  bool fast_;
};

// Counts the kernels that this thread starts directly while the object exists; kernels in a graph do not count.
class CountedKernels final : public gpu::LaunchWatch {
 public:
  CountedKernels() { gpu::launch_watch = this; }
  ~CountedKernels() override { gpu::launch_watch = nullptr; }
  void begin(const char*, const gpu::WatchedProduct&) override { ++kernels; }
  void end() override {}
  int kernels = 0;
};

class GpuShards : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(15);
    ModelConfig& config = description_.config;
    config.family = "llama";
    config.vocab_size = 96;
    config.hidden_size = 128;
    config.intermediate_size = 256;
    config.num_hidden_layers = 4;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 32;
    config.max_position_embeddings = 512;
    make_weights();
  }

  // Weights for the present configuration; the same in both types.
  void make_weights() {
    ModelConfig& config = description_.config;
    description_.names = hf_tensor_names(config);
    add_random_weights(file_, description_, 0.12);
  }
  void divide_by_three() {
    ModelConfig& config = description_.config;
    config.num_attention_heads = config.num_key_value_heads = 3;
    config.intermediate_size = 192;
    make_weights();
  }

  // Rows of a prompt, whole, and of its last tokens, written one after the other.
  struct Hidden {
    at::Tensor whole_TD, decoded_RD;
    std::set<at::ScalarType> added;
    int sums = 0;
    int sums_of_last = 0,
        kernels_of_last = 0;  // the group's sums, and kernels that were started by themselves, of the last written row
  };
  static constexpr std::int64_t kWritten = 4;
  Hidden run(int shards, at::ScalarType dtype, bool gpu_code, bool fast = false, bool graphs = true) {
    auto groups = make_thread_process_groups(shards);
    std::vector<Hidden> of_shard(groups.size());
    std::vector<std::thread> threads;
    for (std::size_t s = 0; s < groups.size(); ++s) {
      threads.emplace_back([&, s] {
        WatchedGroup group(*groups[s], fast);
        ThreadPool pool(1);
        Transformer model = gpu_code ? Transformer(description_, file_, group, pool, dtype, {}, gpu::Queue{})
                                     : Transformer(description_, file_, group, pool, dtype);
        model.use_cuda_graphs(graphs);
        of_shard[s].whole_TD = model.forward(pack_sequences({prompt_})).to(at::kFloat).clone();
        KvCache cache = model.make_cache(4);
        const std::vector<std::int32_t> pages = {2, 1};
        std::vector<at::Tensor> rows;
        const auto size = static_cast<std::int64_t>(prompt_.size()), first = size - kWritten;
        const auto step = [&](std::int64_t past, std::int64_t end) {
          PackedBatch batch = pack_sequences({{prompt_.begin() + past, prompt_.begin() + end}}, {past});
          batch.is_decode_S = {past > 0};
          return model.forward(batch, {{pages.data(), 0}}, cache).to(at::kFloat).clone();
        };
        step(0, first);
        for (std::int64_t i = first; i < size; ++i) {
          const int before = group.sums;
          CountedKernels counted;
          rows.push_back(step(i, i + 1));
          of_shard[s].sums_of_last = group.sums - before;
          of_shard[s].kernels_of_last = counted.kernels;
        }
        of_shard[s].decoded_RD = at::cat(rows);
        of_shard[s].added = group.types;
        of_shard[s].sums = group.sums;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return of_shard[0];
  }

  ModelDescription description_;
  MemoryTensorFile file_;
  const std::vector<TokenId> prompt_ = {5, 90, 17, 33, 2, 64, 71, 8, 12, 45, 3, 77, 81, 6, 28, 50};
};

TEST_F(GpuShards, AddInF32) {
  const Hidden plain = run(1, at::kFloat, false);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat8_e4m3fn}) {
    const Hidden one = run(1, dtype, true);
    for (const int shards : {1, 2}) {
      const Hidden some = shards == 1 ? one : run(shards, dtype, true);
      EXPECT_EQ(some.added, shards == 1 ? std::set<at::ScalarType>{} : std::set<at::ScalarType>{at::kFloat});
      const double whole = apart(some.whole_TD, plain.whole_TD),
                   decoded =
                       apart(some.decoded_RD, plain.whole_TD.narrow(0, plain.whole_TD.size(0) - kWritten, kWritten));
      std::printf("%s, %d shards: %.2e from f32 as a whole, %.2e written\n", c10::toString(dtype), shards, whole,
                  decoded);
      const double limit = dtype == at::kBFloat16 ? 0.06 : 0.6;
      EXPECT_LT(whole, limit);
      EXPECT_LT(decoded, limit);
    }
  }
}

// With sums as kernels a pass is one graph, without them one graph between every two sums: the same bits, also kernel
// by kernel.
TEST_F(GpuShards, GraphsHaveEqualBits) {
  const int sums_of_pass = 1 + 2 * static_cast<int>(description_.config.num_hidden_layers);
  for (const int shards : {2, 3}) {
    if (shards == 3) divide_by_three();
    for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat8_e4m3fn}) {
      const Hidden whole = run(shards, dtype, true), plain = run(shards, dtype, true, false, false);
      setenv("MAGISTER_PEER_SUMS", "0", 1);
      const Hidden parts = run(shards, dtype, true), separate = run(shards, dtype, true, false, false);
      unsetenv("MAGISTER_PEER_SUMS");
      EXPECT_EQ(whole.sums_of_last, 0) << "nothing stands between the kernels of a pass";
      EXPECT_EQ(whole.kernels_of_last, 0) << "and a graph holds them all";
      EXPECT_EQ(plain.sums_of_last, 0);
      EXPECT_GE(plain.kernels_of_last, sums_of_pass);
      EXPECT_EQ(parts.sums_of_last, sums_of_pass);
      EXPECT_EQ(parts.kernels_of_last, 0);
      EXPECT_EQ(parts.sums, separate.sums);
      for (const Hidden* one : {&whole, &plain, &parts})
        EXPECT_TRUE(at::equal(one->decoded_RD, separate.decoded_RD))
            << c10::toString(dtype) << ", " << shards << " shards";
      EXPECT_EQ(parts.added, std::set<at::ScalarType>{at::kFloat});
    }
  }
}

// Norms over the heads of all shards (OLMo 2) add in the middle of a part: only with sums as kernels there is a graph.
TEST_F(GpuShards, NormsOverAllHeadsAreInTheGraph) {
  ModelConfig& config = description_.config;
  config.qk_norm = config.qk_norm_of_all_heads = true;
  make_weights();
  const Hidden whole = run(2, at::kBFloat16, true);
  setenv("MAGISTER_PEER_SUMS", "0", 1);
  const Hidden separate = run(2, at::kBFloat16, true);
  unsetenv("MAGISTER_PEER_SUMS");
  EXPECT_EQ(whole.sums_of_last, 0);
  EXPECT_EQ(whole.kernels_of_last, 0);
  EXPECT_EQ(separate.sums_of_last, 1 + 3 * static_cast<int>(config.num_hidden_layers));
  EXPECT_GT(separate.kernels_of_last, 0) << "kernel by kernel";
  EXPECT_TRUE(at::equal(whole.decoded_RD, separate.decoded_RD));
}

// Nothing of a pass with experts waits for the host, and sums in the middle of a block of experts beside an MLP are in
// its graph, too.
TEST_F(GpuShards, ExpertsAreInTheGraph) {
  for (const bool beside : {false, true}) {
    ModelConfig& config = description_.config;
    config.num_experts = 6;
    config.num_experts_per_tok = 2;
    config.moe_intermediate_size = 96;
    config.num_shared_experts = beside ? 0 : 1;
    config.dense_beside_experts = beside;
    config.norm_placement = beside ? NormPlacement::kBoth : NormPlacement::kInput;
    file_ = {};
    make_weights();
    const Hidden plain = run(1, at::kFloat, false);
    for (const int shards : {1, 2}) {
      const Hidden whole = run(shards, at::kBFloat16, true), kernels = run(shards, at::kBFloat16, true, false, false);
      EXPECT_EQ(whole.sums_of_last, 0);
      EXPECT_EQ(whole.kernels_of_last, 0) << "a graph holds them all";
      EXPECT_GT(kernels.kernels_of_last, 0);
      EXPECT_TRUE(at::equal(whole.decoded_RD, kernels.decoded_RD));
      const double decoded =
          apart(whole.decoded_RD, plain.whole_TD.narrow(0, plain.whole_TD.size(0) - kWritten, kWritten));
      std::printf("%s, %d shards: %.2e from f32 written\n", beside ? "beside an MLP" : "experts", shards, decoded);
      EXPECT_LT(decoded, 0.3) << "in bf16 a row may have another expert than in f32";
    }
    setenv("MAGISTER_PEER_SUMS", "0", 1);
    const Hidden parts = run(2, at::kBFloat16, true), separate = run(2, at::kBFloat16, true, false, false);
    unsetenv("MAGISTER_PEER_SUMS");
    EXPECT_EQ(parts.kernels_of_last == 0, !beside) << "a graph for each part, but not around a sum";
    EXPECT_TRUE(at::equal(parts.decoded_RD, separate.decoded_RD));
  }
}

// layout.collectives: fast sends bf16 sums as bf16; the sums of a decoding pass are small and stay f32, as the
// embeddings do.
TEST_F(GpuShards, AFastGroupAddsInBf16) {
  const Hidden plain = run(1, at::kFloat, false), fast = run(2, at::kBFloat16, true, true);
  EXPECT_EQ(fast.added, (std::set<at::ScalarType>{at::kFloat, at::kBFloat16}));
  EXPECT_LT(apart(fast.whole_TD, plain.whole_TD), 0.06);
}

}  // namespace gpu_shards_test
}  // namespace magister
