// Products that end with the gate or with the rotation against the product and the kernel behind it, and the norm of a
// few rows against that of any number, bit by bit, on the host. The weights: stored_weight.h.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "magister/parallel/process_group.h"
#include "model/gpu/gpu_backend.h"
#include "model/gpu/gpu_linear.h"
#include "model/gpu/gpu_model.h"
#include "model/gpu/gpu_weights.h"
#include "model/gpu/paired_product.h"
#include "model/gpu/ring_product_kernel.h"
#include "model/gpu/row_norm_kernel.h"
#include "model/stored_weight.h"

namespace magister::gpu {
namespace gpu_paired_product_test {

// Shapes of the outputs are the tests'; K ends inside a step, with four, eight and sixteen chains.
const std::vector<ProductCase> kFormats = {
    {16, 0, 0, 328}, {16, 0, 0, 2088}, {8, 0, 0, 336},   {8, 128, 0, 1040, 96},
    {8, 32, 0, 592}, {4, 128, 0, 416}, {4, 64, 0, 2080}, {4, 32, 0, 8224},
};

class PairedProduct : public testing::TestWithParam<HostOrder> {
 protected:
  void SetUp() override {
    at::manual_seed(11);
    set_host_order(GetParam());
  }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};

struct Rows {
  Stored stored;
  at::Tensor x, bias;
  ProductArguments arguments;
};
Rows rows_of(ProductCase c, int N, int M) {
  c.N = N;
  Rows rows{stored_weight(c), at::randn({M, c.K}).to(at::kBFloat16), at::randn({N}), {}};
  rows.arguments = {rows.stored.weight, data<Bf16>(rows.x), c.K, rows.bias.data_ptr<float>(), nullptr, N, M, false};
  return rows;
}
at::Tensor product_alone(const Rows& rows, const ProductCase& c, const NextWeight& next = {}) {
  at::Tensor out_MN = at::full({rows.x.size(0), rows.bias.size(0)}, NAN, at::kBFloat16);
  ProductArguments arguments = rows.arguments;
  arguments.out_MN = out_MN.data_ptr();
  decode_product(arguments, c.bits, c.group, Queue{}, next);
  return out_MN;
}

TEST_P(PairedProduct, WithTheGateHasTheBitsOfBothKernels) {
  for (const ProductCase& c : kFormats) {
    for (const int M : {1, 8}) {
      SCOPED_TRACE(product_name({c, 0}) + ", " + std::to_string(M) + " rows");
      constexpr int F = 24;
      const Rows rows = rows_of(c, 2 * F, M);
      const Activation activation = M == 1 ? Activation::kSilu : Activation::kGeluTanh;
      at::Tensor gate_up = product_alone(rows, c), wanted = at::empty({M, F}, at::kBFloat16),
                 out = at::full({M, F}, NAN, at::kBFloat16);
      const GateMultiply<Bf16> gate{data<Bf16>(gate_up), data<Bf16>(wanted), F, activation};
      launch(gate, gate.shape(M), Queue{});
      ASSERT_TRUE(gate_product(rows.arguments, c.bits, c.group, {data<Bf16>(out), F, activation}, Queue{}));
      EXPECT_TRUE(at::equal(out, wanted));
    }
  }
}

struct Heads {
  at::Tensor qkv, cos, sin, rows, slots, keys, values;
  RotateHeads<Bf16> kernel;

  Heads(const at::Tensor& qkv_TQ, std::int64_t H, std::int64_t K, std::int64_t E) : qkv(qkv_TQ) {
    const std::int64_t T = qkv.size(0);
    cos = at::cos(at::arange(11 * E / 2, at::kFloat) * 0.1).view({11, -1});
    sin = at::sin(at::arange(11 * E / 2, at::kFloat) * 0.1).view({11, -1});
    rows = at::remainder(at::arange(T) * 7 + 3, 11).to(at::kInt);
    slots = at::remainder(at::arange(T) * 29 + 5, 96);
    keys = at::zeros({2, K, kPageSlots, E}, at::kBFloat16);
    values = at::zeros_like(keys);
    kernel = {data<Bf16>(qkv),
              cos.data_ptr<float>(),
              sin.data_ptr<float>(),
              rows.data_ptr<std::int32_t>(),
              nullptr,
              nullptr,
              data<Bf16>(keys),
              data<Bf16>(values),
              slots.data_ptr<std::int64_t>(),
              H,
              K,
              E,
              E,
              1e-6f};
  }
};

TEST_P(PairedProduct, WithTheRotationHasTheBitsOfBothKernels) {
  for (const ProductCase& c : kFormats) {
    for (const auto& [M, K] : {std::pair{1, 1}, {8, 2}, {3, 0}}) {  // a layer without keys of its own rotates queries
      SCOPED_TRACE(product_name({c, 0}) + ", " + std::to_string(M) + " rows, " + std::to_string(K) + " KV heads");
      constexpr int H = 3, E = 48;
      const int N = (H + 2 * K) * E;
      const Rows rows = rows_of(c, N, M);
      const Heads wanted(product_alone(rows, c), H, K, E), heads(at::full({M, N}, NAN, at::kBFloat16), H, K, E);
      launch(wanted.kernel, wanted.kernel.shape(M), Queue{});
      ASSERT_TRUE(rotate_product(rows.arguments, c.bits, c.group, {heads.kernel}, Queue{}));
      EXPECT_TRUE(at::equal(heads.qkv, wanted.qkv));
      EXPECT_TRUE(at::equal(heads.keys, wanted.keys));
      EXPECT_TRUE(at::equal(heads.values, wanted.values));
      EXPECT_EQ(heads.keys.count_nonzero().item<std::int64_t>(), std::int64_t{M} * K * E);
    }
  }
}

TEST_P(PairedProduct, LeavesOtherShapesToOtherKernels) {
  const Rows rows = rows_of({16, 0, 0, 328}, 5 * 48, 2);
  at::Tensor out = at::full({16, 5 * 48}, NAN, at::kBFloat16);
  const Heads heads(out.narrow(0, 0, 2), 3, 1, 48);
  const auto rotates = [&](auto change) {
    RotateHeads<Bf16> kernel = heads.kernel;
    ProductArguments arguments = rows.arguments;
    change(kernel, arguments);
    return rotate_product(arguments, 16, 0, {kernel}, Queue{});
  };
  EXPECT_FALSE(rotates([&](auto& kernel, auto&) { kernel.R = 32; })) << "a part of the head";
  EXPECT_FALSE(rotates([&](auto& kernel, auto&) { kernel.codes = true; }));
  EXPECT_FALSE(rotates([&](auto& kernel, auto&) { kernel.V = 32; }));
  EXPECT_FALSE(rotates([&](auto& kernel, auto&) { kernel.k_norm_E = rows.bias.data_ptr<float>(); }));
  EXPECT_FALSE(rotates([&](auto&, auto& arguments) { arguments.M = 9; }));
  EXPECT_FALSE(rotates([&](auto&, auto& arguments) { arguments.x_stride = 329; }));
  EXPECT_FALSE(gate_product(rows.arguments, 16, 0, {data<Bf16>(out), 100, Activation::kSilu}, Queue{}));
  const Rows odd = rows_of({16, 0, 0, 328}, 40, 1), zeros = rows_of({8, 128, 0, 160, 0, Offset::kZero}, 48, 1),
             wide = rows_of({16, 0, 0, 16}, 4224, 3);
  EXPECT_FALSE(gate_product(odd.arguments, 16, 0, {data<Bf16>(out), 20, Activation::kSilu}, Queue{}));
  EXPECT_FALSE(gate_product(zeros.arguments, 8, 128, {data<Bf16>(out), 24, Activation::kSilu}, Queue{}));
  EXPECT_FALSE(gate_product(wide.arguments, 16, 0, {data<Bf16>(out), 2112, Activation::kSilu}, Queue{}));
  EXPECT_TRUE(out.isnan().all().item<bool>()) << "nothing has run";
  EXPECT_TRUE(rotates([](auto&, auto&) {}));
}

// The bytes of a row that are asked for begin where the first steps end, and end with the row.
TEST(RingProduct, AsksForItsOwnRows) {
  RingProduct<16, 1, 1> kernel{};
  for (const auto& [K, warps, begin, count] : {std::tuple{4096, 8, 1024, 3072},
                                               {4096, 16, 2048, 6144},
                                               {14336, 16, 2048, 6144},
                                               {1024, 8, 1024, 1024},
                                               {500, 8, 1024, -24}}) {
    kernel.a.weight.K = K;
    EXPECT_EQ(kernel.asked(warps).begin, begin) << K;
    EXPECT_EQ(kernel.asked(warps).count, count) << K;
  }
}

// The hint changes no bit. The host reads the first and the last byte of everything that is asked for.
TEST_P(PairedProduct, AsksForTheNextProductsRows) {
  for (const ProductCase& c : kFormats) {
    if (c.K > 500) continue;  // four chains: many blocks are slow on the host
    SCOPED_TRACE(product_name({c, 0}));
    const Rows rows = rows_of(c, 4848, 1);  // 303 blocks, of which 264 ask
    const at::Tensor wanted = product_alone(rows, c);
    const NextWeight next{rows.stored.weight.rows, rows.stored.weight.row_bytes / 16 * 16, 700, 400, 16};
    EXPECT_TRUE(at::equal(product_alone(rows, c, next), wanted));
  }
  const NextWeight next{nullptr, 64, 6, 100, 16};
  EXPECT_EQ(next.row(2) - next.row(0), 128);
  EXPECT_EQ(next.row(3) - next.row(0), 6400);
}

TEST(NextWeight, IsWhatTheFirstBlocksRead) {
  GpuLinear linear;
  linear.outputs = 28672, linear.inputs = 4096;
  linear.weight_NK = at::empty({1, 4096}, at::kBFloat16).expand({28672, 4096});
  const NextWeight gate = next_weight(linear, true);
  EXPECT_EQ(gate.count, 8448);
  EXPECT_EQ(gate.half_begin, 14336);
  EXPECT_EQ(gate.bytes, 1488) << "12 MB of all";
  linear.outputs = 16, linear.inputs = 72;
  EXPECT_EQ(next_weight(linear).count, 16);
  EXPECT_EQ(next_weight(linear).half_begin, 8) << "one row after the other";
  EXPECT_EQ(next_weight(linear).bytes, 144);
  linear.weight_NK = at::empty({16, 100}, at::kBFloat16);
  EXPECT_EQ(next_weight(linear).count, 0) << "rows begin anywhere";
  EXPECT_EQ(next_weight({}).count, 0);
}

TEST_P(PairedProduct, NormsOfAFewRowsHaveTheBitsOfTheNormOfMany) {
  for (const std::int64_t D : {8, 576, 2056, 4096, 4104, 8192}) {
    for (const auto& [T, with_delta] : {std::pair{1, true}, {3, true}, {2, false}}) {
      const at::Tensor hidden = at::randn({T, D}), delta = at::randn({T, D}), weight = at::rand({D}) + 0.5;
      at::Tensor wanted_stream = hidden.clone(), stream = hidden.clone(), wanted = at::empty({T, D}, at::kBFloat16),
                 out = at::full({T, D}, NAN, at::kBFloat16);
      AddRmsNorm<Bf16, float> norm{wanted_stream.data_ptr<float>(),
                                   with_delta ? delta.data_ptr<float>() : nullptr,
                                   weight.data_ptr<float>(),
                                   data<Bf16>(wanted),
                                   D,
                                   1e-5f,
                                   nullptr,
                                   0.75f};
      launch(norm, norm.shape(T), Queue{});
      norm.hidden_TD = stream.data_ptr<float>();
      norm.out_TD = data<Bf16>(out);
      EXPECT_EQ(AddRowNorm<2>::takes(norm, T), D <= 4096);
      if (D <= 4096) {
        const AddRowNorm<2> kernel{norm};
        launch(kernel, kernel.shape(T), Queue{});
      } else {
        const AddRowNorm<4> kernel{norm};
        launch(kernel, kernel.shape(T), Queue{});
      }
      EXPECT_TRUE(at::equal(out, wanted)) << D;
      EXPECT_TRUE(at::equal(stream, wanted_stream)) << D;
      norm.weight_D = nullptr;
      EXPECT_FALSE(AddRowNorm<4>::takes(norm, T));
    }
  }
}

// Names of the kernels that are started while it lives.
class Started : public LaunchWatch {
 public:
  Started() { launch_watch = this; }
  ~Started() override { launch_watch = nullptr; }
  void begin(const char* name, const WatchedProduct&) override { names.insert(name); }
  void end() override {}
  bool has(const char* name) const { return names.count(name) > 0; }

  std::set<std::string> names;
};

// Three decoding passes of the first `count` of nine texts; the hidden states of the last, [count, D].
at::Tensor decoded(GpuModel& model, std::size_t count) {
  KvCache cache = model.make_cache(9);
  std::vector<std::int32_t> pages(count);
  std::vector<BlockTable> slots;
  for (std::size_t text = 0; text < count; ++text) {
    pages[text] = static_cast<std::int32_t>(text);
    slots.push_back({&pages[text], 0});
  }
  at::Tensor last;
  for (std::int64_t pass = 0; pass < 3; ++pass) {
    std::vector<std::vector<TokenId>> rows;
    for (std::size_t text = 0; text < count; ++text) rows.push_back({static_cast<TokenId>(20 + 5 * pass + 3 * text)});
    PackedBatch batch = pack_sequences(rows, std::vector<std::int64_t>(count, pass));
    batch.is_decode_S.assign(count, 1);
    last = model.forward(batch, slots, &cache).clone();
  }
  return last;
}

// Up to eight rows go through the paired products, nine through the product and the kernel behind it. Heads of which
// only a part turns have the rotation's own kernel.
TEST(PairedDecoding, GivesARowTheBitsThatItHasAmongNine) {
  at::manual_seed(2);
  const std::unique_ptr<ProcessGroup> group = make_single_process_group();
  for (const QuantScheme& scheme : {QuantScheme{}, {QuantType::kInt8, 32}, {QuantType::kInt4, 64}}) {
    for (const bool turns_whole_heads : {true, false}) {
      ModelConfig config;
      config.family = "llama";
      config.hidden_size = 128;
      config.num_hidden_layers = 2;
      config.num_attention_heads = 4;
      config.num_key_value_heads = 2;
      config.head_dim = 32;
      config.vocab_size = 96;
      config.intermediate_size = 256;
      config.max_position_embeddings = 512;
      if (!turns_whole_heads) config.rotary_dim = 16;
      GpuModel model(random_gpu_weights(config, *group, at::kBFloat16, scheme, Queue{}), Queue{}, *group);
      const auto run = [&](std::size_t count, bool rotates, bool gates) {
        const Started started;
        const at::Tensor rows = decoded(model, count);
        EXPECT_EQ(started.has("rotate_product"), rotates) << count;
        EXPECT_EQ(started.has("rotate_heads"), !rotates) << count;
        EXPECT_EQ(started.has("gate_product"), gates) << count;
        EXPECT_EQ(started.has("gate_multiply"), !gates) << count;
        return rows;
      };
      const at::Tensor nine = run(9, false, false);
      EXPECT_TRUE(at::equal(run(1, turns_whole_heads, true), nine.narrow(0, 0, 1)));
      EXPECT_TRUE(at::equal(run(6, turns_whole_heads, true), nine.narrow(0, 0, 6)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BothOrders, PairedProduct, testing::Values(HostOrder::kAscending, HostOrder::kDescending));

}  // namespace gpu_paired_product_test
}  // namespace magister::gpu
