// The kernels of experts in passes of prompts on the GPU: near their emulation on the host, with the same bits in a
// second run and for a row alone. Besides it prints the TFLOP/s of ExpertProduct beside cuBLAS expert by expert, in
// turns over the same rows; nothing depends on these figures.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "gpu/both_queues.h"
#include "magister/device/gpu_stamp.h"
#include "model/gpu/dequantize_experts_kernel.h"
#include "model/gpu/expert_product_kernel.h"
#include "model/gpu/prompt_routes_kernels.h"

namespace magister::gpu {
namespace prompt_experts_test {

using kernels_test::Both;
using kernels_test::data;
using kernels_test::expect_close;
using kernels_test::on_both;
using kernels_test::Tensors;

// [T, k]: the experts of each token, ascending.
at::Tensor random_choices(std::int64_t T, std::int64_t X, std::int64_t k) {
  const at::Tensor chosen_Tk = std::get<1>(at::rand({T, X}).topk(k, 1));
  return std::get<0>(chosen_Tk.sort(1)).to(at::kInt).contiguous();
}

at::Tensor places_of(const at::Tensor& weights_XMK, const at::Tensor& bias_XM) {
  const std::int64_t X = weights_XMK.size(0);
  at::Tensor places_X = at::empty({X * static_cast<std::int64_t>(sizeof(ExpertPlace))}, at::kByte);
  for (std::int64_t x = 0; x < X; ++x)
    reinterpret_cast<ExpertPlace*>(places_X.data_ptr())[x] = {
        data<unsigned char>(weights_XMK) + x * weights_XMK.stride(0) * weights_XMK.element_size(), nullptr, nullptr,
        bias_XM.defined() ? data<float>(bias_XM) + x * bias_XM.size(1) : nullptr, nullptr};
  return places_X.to(weights_XMK.device());
}

// The routes of tokens with k experts each, sorted on a device.
struct Sorted {
  at::Tensor counts_BX, first_X, items_I3, place_of_Tk, route_N;
  int T, k, X;

  Sorted(std::int64_t tokens, std::int64_t experts, std::int64_t chosen, at::Device device)
      : T(static_cast<int>(tokens)), k(static_cast<int>(chosen)), X(static_cast<int>(experts)) {
    const auto ints = at::TensorOptions().dtype(at::kInt).device(device);
    counts_BX = at::zeros({PromptRoutes::blocks_of(T), X}, ints);
    first_X = at::zeros({X}, ints);
    items_I3 = at::zeros({most_expert_items(T * k, X, ExpertProduct::kRows), 3}, ints);
    place_of_Tk = at::zeros({T, k}, ints);
    route_N = at::zeros({T * k}, ints);
  }
  void sort(const at::Tensor& experts_Tk, const Queue& queue) const {
    const PromptRoutes routes{data<std::int32_t>(experts_Tk), T, k, 0, X};
    start(CountRoutes{routes, data<std::int32_t>(counts_BX)}, queue);
    start(PlaceExperts{data<std::int32_t>(counts_BX), data<std::int32_t>(first_X), data<ExpertRows>(items_I3),
                       PromptRoutes::blocks_of(T), X, ExpertProduct::kRows, static_cast<int>(items_I3.size(0))},
          queue);
    start(PlaceRoutes{routes, data<std::int32_t>(counts_BX), data<std::int32_t>(first_X),
                      data<std::int32_t>(place_of_Tk), data<std::int32_t>(route_N)},
          queue);
  }
};

template <typename Kernel>
void multiply_with(const at::Tensor& x_TK, const Sorted& sorted, const at::Tensor& places_X, const at::Tensor& out_NM,
                   const Queue& queue) {
  using A = typename Kernel::Number;
  const std::int64_t K = x_TK.size(1), M = out_NM.size(1);
  start(Kernel{{data<A>(x_TK), K, data<std::int32_t>(sorted.route_N), sorted.k,
                reinterpret_cast<const ExpertPlace*>(places_X.data_ptr()), data<ExpertRows>(sorted.items_I3),
                static_cast<int>(sorted.items_I3.size(0)), static_cast<std::int64_t>(sizeof(A)) * K,
                static_cast<int>(M), static_cast<int>(K), out_NM.data_ptr(), out_NM.scalar_type() == at::kFloat}},
        queue);
}
void multiply(const at::Tensor& x_TK, const Sorted& sorted, const at::Tensor& places_X, const at::Tensor& out_NM,
              const Queue& queue) {
  x_TK.scalar_type() == at::kFloat ? multiply_with<FloatExpertProduct>(x_TK, sorted, places_X, out_NM, queue)
                                   : multiply_with<ExpertProduct>(x_TK, sorted, places_X, out_NM, queue);
}

// CountRoutes, PlaceExperts, PlaceRoutes, ExpertProduct and FloatExpertProduct.
TEST(PromptExpertsOnBoth, RoutesAndProducts) {
  at::manual_seed(8);
  constexpr std::int64_t X = 7, k = 3, K = 232, M = 328;
  for (const std::int64_t T : {1, 50, 700}) {
    for (const auto& [factors, type] : {std::pair(at::kBFloat16, at::kFloat), std::pair(at::kBFloat16, at::kBFloat16),
                                        std::pair(at::kFloat, at::kFloat)}) {
      const Sorted shape(T, X, k, at::kCPU);
      const Tensors inputs = {random_choices(T, X, k),
                              at::randn({X, M, K}).to(factors),
                              at::randn({X, M}),
                              at::randn({T, K}).to(factors),
                              at::zeros({T * k, M}, type),
                              shape.items_I3,
                              shape.route_N,
                              shape.place_of_Tk};
      const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
        Sorted sorted(T, X, k, device_of(queue));
        sorted.items_I3 = t[5];
        sorted.route_N = t[6];
        sorted.place_of_Tk = t[7];
        sorted.sort(t[0], queue);
        const at::Tensor places_X = places_of(t[1], t[2]);
        multiply(t[3], sorted, places_X, t[4], queue);
        if (!queue.on_host()) t[4].cpu();  // the places are in use until then
      });
      for (const std::size_t exact : {5, 6, 7}) EXPECT_TRUE(at::equal(both.device[exact], both.host[exact])) << exact;
      if (type == at::kFloat) {
        expect_close<float>(both.device[4], both.host[4]);
      } else {
        expect_close<Bf16>(both.device[4], both.host[4]);
      }
    }
  }
}

TEST(PromptExpertsOnBoth, DequantizeExperts) {
  at::manual_seed(10);
  constexpr std::int64_t X = 3, N = 40, K = 96, G = K / 32;
  const auto convert = [&]<int kBits, typename A>(at::ScalarType type) {
    const Tensors inputs = {at::randint(256, {X, N, K * kBits / 8}, at::kByte),
                            (at::rand({X, N, G}) + 0.5).to(at::kHalf), at::zeros({X, N, K}, type)};
    const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
      at::Tensor places_X = at::empty({X * static_cast<std::int64_t>(sizeof(ExpertPlace))}, at::kByte);
      for (std::int64_t x = 0; x < X; ++x)
        reinterpret_cast<ExpertPlace*>(places_X.data_ptr())[x] = {data<unsigned char>(t[0]) + x * t[0].stride(0),
                                                                  data<std::uint16_t>(t[1]) + x * N * G, nullptr,
                                                                  nullptr, nullptr};
      const at::Tensor there_X = places_X.to(device_of(queue));
      StoredWeight weight{.row_bytes = K * kBits / 8, .N = N, .K = K, .G = G, .half_scales = true};
      weight.group_shift = 5;
      start(
          DequantizeExperts<kBits, A>{
              {weight, data<A>(t[2])}, reinterpret_cast<const ExpertPlace*>(there_X.data_ptr()), static_cast<int>(X)},
          queue);
      if (!queue.on_host()) t[2].cpu();  // the places are in use until then
    });
    EXPECT_TRUE(at::equal(both.device[2], both.host[2])) << kBits << " bits";
    EXPECT_GT(both.host[2][X - 1].abs().max().template item<double>(), 1) << "the last expert's numbers";
  };
  convert.template operator()<8, Bf16>(at::kBFloat16);
  convert.template operator()<4, Bf16>(at::kBFloat16);
  convert.template operator()<8, float>(at::kFloat);
  convert.template operator()<4, float>(at::kFloat);
}

TEST(PromptExpertsOnBoth, WidenExperts) {
  constexpr std::int64_t X = 2, C = 16 * (4 * 256 + 3);
  const Both both =
      on_both({at::arange(X * C).remainder(256).to(at::kByte), at::zeros({X, C}, at::kBFloat16)},
              [&](const Tensors& t, const Queue& queue) {
                at::Tensor places_X = at::zeros({X * static_cast<std::int64_t>(sizeof(ExpertPlace))}, at::kByte);
                for (std::int64_t x = 0; x < X; ++x)
                  reinterpret_cast<ExpertPlace*>(places_X.data_ptr())[x].rows = data<unsigned char>(t[0]) + x * C;
                const at::Tensor there_X = places_X.to(device_of(queue));
                start(WidenExperts{C, reinterpret_cast<const ExpertPlace*>(there_X.data_ptr()), static_cast<int>(X),
                                   data<Bf16>(t[1])},
                      queue);
                if (!queue.on_host()) t[1].cpu();  // the places are in use until then
              });
  EXPECT_TRUE(at::allclose(both.device[1], both.host[1], 0, 0, /*equal_nan=*/true));
}

// Every row of a pass again, as the only row of its expert.
void expect_own_bits(at::ScalarType factors) {
  constexpr std::int64_t X = 2, T = 150, K = 512, M = 264;
  const Queue queue = gpu_queue();
  const auto device = device_of(queue);
  const at::Tensor weights_XMK = at::randn({X, M, K}).to(factors).to(device),
                   x_TK = at::randn({T, K}).to(factors).to(device), places_X = places_of(weights_XMK, {}),
                   out_TM = at::zeros({T, M}, x_TK.options().dtype(at::kFloat)),
                   experts_T1 = at::zeros({T, 1}, at::kInt).to(device);
  Sorted all(T, X, 1, device);
  all.sort(experts_T1, queue);
  multiply(x_TK, all, places_X, out_TM, queue);
  for (std::int64_t t = 0; t < T; t += 7) {
    Sorted one(1, X, 1, device);
    one.sort(experts_T1.narrow(0, t, 1), queue);
    const at::Tensor out_1M = at::zeros({1, M}, out_TM.options());
    multiply(x_TK.narrow(0, t, 1), one, places_X, out_1M, queue);
    EXPECT_TRUE(at::equal(out_1M[0], out_TM[t])) << "row " << t;
  }
}

TEST(PromptExpertsOnBoth, ARowAloneHasItsBits) {
  at::manual_seed(9);
  expect_own_bits(at::kBFloat16);
  expect_own_bits(at::kFloat);
}

double milliseconds_of(const std::function<void()>& queue_all) {
  if (gpu_queue().on_host()) {
    const auto begin = std::chrono::steady_clock::now();
    queue_all();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  const GpuStamp begin = GpuStamp::record();
  queue_all();
  return GpuStamp::record().milliseconds_since(begin);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Shape {
  const char* name;
  std::int64_t X, k, M, K;
};

// Prints the rates of one product of all experts for T tokens.
void print_rates(const Shape& shape, std::int64_t T, at::ScalarType factors) {
  const Queue queue = gpu_queue();
  const auto device = device_of(queue);
  const auto options = at::TensorOptions().dtype(factors).device(device);
  const at::Tensor weights_XMK = at::randn({shape.X, shape.M, shape.K}, options),
                   x_TK = at::randn({T, shape.K}, options), experts_Tk = random_choices(T, shape.X, shape.k),
                   there_Tk = experts_Tk.to(device), counts_X = experts_Tk.view({-1}).bincount({}, shape.X),
                   places_X = places_of(weights_XMK, {}), out_NM = at::empty({T * shape.k, shape.M}, options),
                   rows_NK = at::randn({T * shape.k, shape.K}, options);
  const Sorted sorted(T, shape.X, shape.k, device);
  std::vector<double> sorting, ours, theirs;
  for (int i = 0; i < (queue.on_host() ? 1 : 7); ++i) {
    sorting.push_back(milliseconds_of([&] { sorted.sort(there_Tk, queue); }));
    ours.push_back(milliseconds_of([&] { multiply(x_TK, sorted, places_X, out_NM, queue); }));
    theirs.push_back(milliseconds_of([&] {
      for (std::int64_t x = 0, first = 0; x < shape.X; ++x) {
        const auto rows = counts_X[x].item<std::int64_t>();
        if (rows == 0) continue;
        at::Tensor out = out_NM.narrow(0, first, rows);
        at::mm_out(out, rows_NK.narrow(0, first, rows), weights_XMK[x].t());
        first += rows;
      }
    }));
  }
  const double operations = 2e-9 * static_cast<double>(T * shape.k) * static_cast<double>(shape.M * shape.K);
  std::printf(
      "   %s in %s, %lld experts of %lld x %lld, %lld for each of %lld tokens: sorted in %.1f us; one launch %.0f us, "
      "%.0f TFLOP/s; cuBLAS expert by expert %.0f us, %.0f TFLOP/s\n",
      shape.name, c10::toString(factors), static_cast<long long>(shape.X), static_cast<long long>(shape.M),
      static_cast<long long>(shape.K), static_cast<long long>(shape.k), static_cast<long long>(T),
      1e3 * median(sorting), 1e3 * median(ours), operations / median(ours), 1e3 * median(theirs),
      operations / median(theirs));
}

// Shapes on both sides of the rule of groups_prompts().
TEST(ExpertProductRate, BesideCublasExpertByExpert) {
  const std::vector<Shape> many = {{"Qwen3-30B-A3B, gate and up", 128, 8, 1536, 2048},
                                   {"Qwen3-30B-A3B, down", 128, 8, 2048, 768},
                                   {"OLMoE, gate and up", 64, 8, 2048, 2048},
                                   {"DeepSeek-V3 over 8 shards, gate and up", 256, 8, 512, 7168},
                                   {"gpt-oss-20b, gate and up", 32, 4, 5760, 2880},
                                   {"Mixtral 8x7B, gate and up", 8, 2, 28672, 4096}},
                           few = {{"small", 4, 2, 264, 72}};
  const bool on_host = gpu_queue().on_host();
  for (const Shape& shape : on_host ? few : many) {
    for (const std::int64_t T : on_host ? std::vector<std::int64_t>{40} : std::vector<std::int64_t>{512, 2048, 8192})
      print_rates(shape, T, at::kBFloat16);
  }
  const Shape in_f32 = on_host ? few[0] : many[2];
  print_rates(in_f32, on_host ? 40 : 2048, at::kFloat);
}

}  // namespace prompt_experts_test
}  // namespace magister::gpu
