// Products of codes with the rows of many texts (CodeProduct and AddPieces) on the GPU: near their emulation on the
// host and products in double, a row's bits its own. Besides it prints their TFLOP/s beside conversion and cuBLAS;
// nothing depends on these figures.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "gpu/both_queues.h"
#include "magister/device/gpu_stamp.h"
#include "model/coded_rows.h"

namespace magister::gpu::kernels_test {
namespace {

class CodedRows : public testing::TestWithParam<ProductCase> {};

TEST_P(CodedRows, AreNearTheHostsAndARowsBitsAreItsOwn) {
  at::manual_seed(7);
  const ProductCase& c = GetParam();
  const Stored s = stored_weight(c);
  const at::Tensor one_hot = at::eye(c.K, at::kBFloat16);
  EXPECT_TRUE(at::equal(code_product(s, c, one_hot, {}, true, gpu_queue()), code_product(s, c, one_hot, {})));
  const at::Tensor x = at::randn({256, c.K}).to(at::kBFloat16), bias = at::randn({c.N});
  const at::Tensor size = at::linear(x.to(at::kDouble).abs(), s.value_NK.abs(), bias.to(at::kDouble).abs());
  const at::Tensor all = code_product(s, c, x, bias, true, gpu_queue()),
                   host = code_product(s, c, x.narrow(0, 0, 9), bias);
  EXPECT_LE(((all.narrow(0, 0, 9) - host).to(at::kDouble).abs() / size.narrow(0, 0, 9)).max().item<double>(), 3e-6);
  const at::Tensor weight = s.value_NK.to(at::kFloat).to(at::kBFloat16).to(at::kDouble),
                   wanted = at::linear(x.to(at::kDouble), weight, bias.to(at::kDouble));
  EXPECT_LE(((all.to(at::kDouble) - wanted).abs() / size).max().item<double>(), 3e-6);
  for (const auto& [first, rows] : {std::pair{166, 1}, {100, 7}, {3, 64}, {7, 160}, {0, 161}}) {
    const at::Tensor some = code_product(s, c, x.narrow(0, first, rows).clone(), bias, true, gpu_queue());
    EXPECT_TRUE(at::equal(some, all.narrow(0, first, rows))) << rows << " rows from " << first;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodedRows, testing::ValuesIn(coded_cases()), product_name);

// Milliseconds of the queue's device, the median of seven.
double time_of(const std::function<void()>& queue_all) {
  std::vector<double> times;
  for (int i = 0; i < 8; ++i) {
    const GpuStamp begin = GpuStamp::record();
    queue_all();
    times.push_back(GpuStamp::record().milliseconds_since(begin));
  }
  std::sort(times.begin() + 1, times.end());
  return times[4];
}

void print_rates(int bits, int N, int K) {
  const Queue queue = gpu_queue();
  const auto options = at::TensorOptions().device(device_of(queue));
  const at::Tensor codes = at::randint(0, 256, {N, K * bits / 8}, options.dtype(at::kByte)),
                   scales = at::rand({N, K / 128}, options).to(at::kBFloat16),
                   plain = at::empty({N, K}, options.dtype(at::kBFloat16)),
                   pieces = at::empty({code_piece_numbers(256, N, K)}, options.dtype(at::kFloat));
  StoredWeight weight;
  weight.rows = data<unsigned char>(codes);
  weight.row_bytes = codes.size(1);
  weight.scales = data<std::uint16_t>(scales);
  weight.N = N, weight.K = K, weight.G = K / 128;
  for (const int M : {32, 64, 96, 160, 256}) {
    const at::Tensor x = at::randn({M, K}, options).to(at::kBFloat16);
    at::Tensor out = at::empty({M, N}, x.options());
    const ProductArguments a{weight, data<Bf16>(x), K, nullptr, out.data_ptr(), N, M, false};
    const double codes_ms = time_of([&] { code_product(a, bits, 128, data<float>(pieces), queue); });
    const double plain_ms = time_of([&] {
      dequantize(weight, bits, 128, plain.data_ptr(), false, queue);
      at::mm_out(out, x, plain.t());
    });
    const double operations = 2e-9 * M * N * K;
    std::printf("   int%d %d x %d, %d rows: codes %.0f us, %.0f TFLOP/s; converted, cuBLAS %.0f us, %.0f TFLOP/s\n",
                bits, N, K, M, 1e3 * codes_ms, operations / codes_ms, 1e3 * plain_ms, operations / plain_ms);
  }
}

TEST(CodeProductRate, BesideConversion) {
  if (gpu_queue().on_host()) GTEST_SKIP() << "a rate of the emulation says nothing";
  for (const int bits : {8, 4}) {
    for (const auto& [N, K] : {std::pair{10240, 8192}, {8192, 8192}, {57344, 8192}, {8192, 28672}})
      print_rates(bits, N, K);
  }
}

}  // namespace
}  // namespace magister::gpu::kernels_test
