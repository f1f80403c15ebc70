// The kernels of latent attention and of its indexer on the GPU against their emulation on the host, with the same
// inputs. Sums have another order in the tensor cores and expf is the GPU's own; a second run gives the same bits.
#include "model/gpu/latent_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "gpu/gpu_under_test.h"
#include "model/gpu/gpu_weights.h"
#include "model/gpu/head_product_kernel.h"
#include "model/gpu/index_kernels.h"
#include "model/gpu/latent_attention_kernels.h"

namespace magister::gpu {
namespace latent_kernels_test {

using Places = std::vector<at::Tensor>;
using Body = std::function<void(const Places&, const Queue&)>;

Places computed(const Queue& queue, const Places& inputs, const Body& body) {
  Places there;
  for (const at::Tensor& tensor : inputs)
    there.push_back(tensor.to(device_of(queue), /*non_blocking=*/false, /*copy=*/true));
  body(there, queue);
  for (at::Tensor& tensor : there) tensor = tensor.cpu();
  return there;
}

// Runs the body over copies of the inputs on both, and compares all of them afterwards, relative to the largest number.
void expect_alike(const Places& inputs, double limit, const Body& body) {
  const Places host = computed(Queue{}, inputs, body), device = computed(gpu_queue(), inputs, body),
               again = computed(gpu_queue(), inputs, body);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(at::equal(again[i].view(at::kByte), device[i].view(at::kByte))) << "tensor " << i << " in a second run";
    const at::Tensor wanted = host[i].to(at::kDouble), apart = (device[i].to(at::kDouble) - wanted).abs();
    EXPECT_LE(apart.max().item<double>(), limit * wanted.abs().max().item<double>()) << "tensor " << i;
  }
}

template <typename A>
class LatentRowsOnBoth : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(31); }
};
using Types = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(LatentRowsOnBoth, Types);

TYPED_TEST(LatentRowsOnBoth, ShortVectorsTurnQueriesAndPlaceHeads) {
  using A = TypeParam;
  const at::ScalarType type = std::is_same_v<A, float> ? at::kFloat : at::kBFloat16;
  struct Sizes {
    std::int64_t L, C, R, N, V, H;
  };
  for (const Sizes& s : {Sizes{20, 24, 8, 12, 10, 3}, Sizes{1536, 512, 64, 128, 128, 5}}) {
    constexpr std::int64_t T = 7;
    const std::int64_t W = s.C + s.R, E = s.N + s.R, X = (std::max(E, s.V) + 7) / 8 * 8;
    const Places inputs = {at::randn({T, s.L + W}).to(type),
                           at::zeros({T, s.L}, type),
                           at::zeros({T, W}, type),
                           at::rand({s.L}) + 0.5,
                           at::rand({s.C}) + 0.5,
                           at::randn({T, s.R / 2}),
                           at::randn({T, s.R / 2}),
                           at::randperm(T, at::kInt),
                           at::zeros({2, 1, 48, W}, type),
                           at::randperm(96, at::kLong).narrow(0, 0, T).contiguous(),
                           at::randn({T, s.H, E}).to(type),
                           at::zeros({T, s.H, X}, type),
                           at::randn({T, s.H, s.N + s.V}).to(type),
                           at::zeros({T, s.H, X}, type),
                           at::zeros({T, s.H, X}, type)};
    expect_alike(inputs, type == at::kFloat ? 4e-6 : 8e-3, [&](const Places& t, const Queue& queue) {
      const ShortVectors<A> vectors{data<A>(t[0]),
                                    data<A>(t[1]),
                                    data<A>(t[2]),
                                    data<float>(t[3]),
                                    data<float>(t[4]),
                                    data<float>(t[5]),
                                    data<float>(t[6]),
                                    data<std::int32_t>(t[7]),
                                    data<A>(t[8]),
                                    data<std::int64_t>(t[9]),
                                    s.L + W,
                                    s.L,
                                    s.C,
                                    s.R,
                                    1e-6f};
      launch(vectors, vectors.shape(T), queue);
      const TurnQueries<A> queries{data<A>(t[10]),
                                   data<A>(t[11]),
                                   data<float>(t[5]),
                                   data<float>(t[6]),
                                   data<std::int32_t>(t[7]),
                                   s.H * E,
                                   s.H,
                                   s.N,
                                   s.R,
                                   X,
                                   s.N,
                                   true};
      launch(queries, queries.shape(T), queue);
      const PlaceHeads<A> heads{
          data<A>(t[12]), data<A>(t[2]), data<A>(t[13]), data<A>(t[14]), s.H, s.N, s.V, s.C, s.R, X};
      launch(heads, heads.shape(T), queue);
    });
  }
}

TYPED_TEST(LatentRowsOnBoth, IndexRowsAndIndexScores) {
  using A = TypeParam;
  const at::ScalarType type = std::is_same_v<A, float> ? at::kFloat : at::kBFloat16;
  for (const auto& [I, E] : std::vector<std::pair<std::int64_t, std::int64_t>>{{5, 18}, {64, 128}}) {
    constexpr std::int64_t T = 150, Q = 8;
    const Places inputs = {
        at::randn({T, E}).to(type), at::randn({T, I, E}).to(type), at::rand({E}) + 0.5,     at::randn({E}),
        at::randn({T, Q / 2}),      at::randn({T, Q / 2}),         at::arange(T, at::kInt), at::randn({T, I}),
        at::zeros({T}, at::kInt),   at::arange(T, at::kInt) + 1,   at::zeros({T, T})};
    expect_alike(inputs, type == at::kFloat ? 4e-6 : 8e-3, [&, I = I, E = E](const Places& t, const Queue& queue) {
      const IndexRows<A> rows{data<A>(t[0]),
                              data<A>(t[1]),
                              data<float>(t[2]),
                              data<float>(t[3]),
                              data<float>(t[4]),
                              data<float>(t[5]),
                              data<std::int32_t>(t[6]),
                              nullptr,
                              nullptr,
                              I,
                              E,
                              Q,
                              1e-6f};
      launch(rows, rows.shape(T), queue);
      KeyPlaces places;
      places.past_R = places.prefix_R = places.own_R = data<std::int32_t>(t[8]);
      start(IndexScores<A>{{data<A>(t[1]), data<float>(t[7]), data<A>(t[0]), places, data<std::int32_t>(t[9]),
                            data<float>(t[10]), T, T, I, E, 3}},
            queue);
    });
  }
}

TEST(LatentsOnBoth, ChooseKeysHasEqualBits) {
  at::manual_seed(32);
  constexpr std::int64_t R = 4, N = 5000, k = 2048;
  const Places inputs = {at::cat({at::randn({2, N}), at::randn({2, N}).round()}), at::zeros({R}, at::kInt),
                         at::tensor({5000, 2049, 4000, 100}, at::kInt), at::zeros({R, k}, at::kInt)};
  expect_alike(inputs, 0, [&](const Places& t, const Queue& queue) {
    KeyPlaces places;
    places.past_R = places.prefix_R = places.own_R = data<std::int32_t>(t[1]);
    start(ChooseKeys{data<float>(t[0]), places, data<std::int32_t>(t[2]), data<std::int32_t>(t[3]), N, R, k}, queue);
  });
}

// LatentAttention and CombineLatents, by pages and by chosen places.
TEST(LatentsOnBoth, AttentionOverThem) {
  at::manual_seed(33);
  for (const bool chosen : {false, true}) {
    constexpr std::int64_t R = 3, H = 18, C = 512, W = 576, K = 4, k = 300;
    const Places inputs = {
        at::randn({R, H, W}).to(at::kBFloat16),
        at::randn({20, 1, 48, W}).to(at::kBFloat16),
        at::randperm(20, at::kInt),
        at::zeros({R}, at::kInt),
        at::tensor(chosen ? std::vector<std::int32_t>{300, 17, 0} : std::vector<std::int32_t>{900, 257, 0}, at::kInt),
        at::randint(0, 960, {R, k}, at::kInt),
        at::zeros({R, H, C}, at::kBFloat16),
        at::zeros({R * H * K * (C + 2)})};
    // Partial sums of chunks that a row does not have stay zeros.
    expect_alike(inputs, 8e-3, [&](const Places& t, const Queue& queue) {
      LatentArguments arguments{data<Bf16>(t[0]),
                                data<Bf16>(t[1]),
                                data<std::int32_t>(t[2]),
                                data<std::int32_t>(t[3]),
                                data<std::int32_t>(t[4]),
                                data<Bf16>(t[6]),
                                20,
                                data<float>(t[7]),
                                data<float>(t[7]) + R * H * K * C,
                                R,
                                H,
                                C,
                                W,
                                K,
                                0.05f};
      if (chosen) arguments.places_Rk = data<std::int32_t>(t[5]);
      arguments.k = k;
      start(LatentAttention{arguments}, queue);
      start(CombineLatents{arguments}, queue);
    });
  }
}

// EachHead over the kernels for few and for many rows.
TEST(LatentsOnBoth, ProductsOfEachHead) {
  at::manual_seed(34);
  for (const std::int64_t M : {1, 8, 16, 32, 64, 256}) {
    for (const std::int64_t K : {128, 12}) {
      constexpr std::int64_t H = 3, N = 512;
      const Places inputs = {at::randn({M, H, K}).to(at::kBFloat16), at::randn({H, N, K}).to(at::kBFloat16),
                             at::zeros({M, H, N}, at::kBFloat16)};
      expect_alike(inputs, 8e-3, [&](const Places& t, const Queue& queue) {
        StoredWeight stored;
        stored.rows = static_cast<const unsigned char*>(t[1].const_data_ptr());
        stored.row_bytes = 2 * K;
        stored.N = N;
        stored.K = static_cast<int>(K);
        head_products({stored, data<Bf16>(t[0]), H * K, nullptr, t[2].data_ptr(), H * N, static_cast<int>(M), false},
                      {2 * N * K, K, 2 * N, H}, queue);
      });
    }
  }
}

}  // namespace latent_kernels_test
}  // namespace magister::gpu
