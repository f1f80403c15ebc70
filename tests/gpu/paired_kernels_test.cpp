// Kernels of one text on the GPU: products that end with the gate (GateEnds) or the rotation (RotatedEnds), against the
// product (StoredEnds) and the kernel behind it, and AddRowNorm against AddRmsNorm. They are other kernels of the same
// device, so all bits are equal.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gpu/both_queues.h"
#include "model/gpu/paired_product.h"
#include "model/gpu/row_norm_kernel.h"
#include "model/stored_weight.h"

namespace magister::gpu::kernels_test {
namespace {

struct OnDevice {
  Stored stored;
  at::Tensor x, out;
  ProductArguments arguments;
};
OnDevice rows_of(const ProductCase& c, int M) {
  const at::Device device = device_of(gpu_queue());
  OnDevice rows{stored_weight(c).to(device),
                at::randn({M, c.K}).to(at::kBFloat16).to(device),
                at::zeros({M, c.N}, at::TensorOptions().dtype(at::kBFloat16).device(device)),
                {}};
  rows.arguments = {rows.stored.weight, data<Bf16>(rows.x), c.K, nullptr, rows.out.data_ptr(), c.N, M, false};
  return rows;
}

const std::vector<ProductCase> kFormats = {{16, 0, 768, 4096},  {8, 128, 768, 4096}, {8, 32, 768, 1024},
                                           {4, 128, 768, 4096}, {4, 64, 768, 4096},  {4, 32, 768, 8192}};

TEST(PairedProduct, HasTheBitsOfBothKernels) {
  at::manual_seed(3);
  for (const ProductCase& c : kFormats) {
    for (const int M : {1, 2, 8}) {
      SCOPED_TRACE(product_name({c, 0}) + ", " + std::to_string(M) + " rows");
      const OnDevice rows = rows_of(c, M);
      decode_product(rows.arguments, c.bits, c.group, gpu_queue());
      const std::int64_t F = c.N / 2;
      at::Tensor wanted = at::zeros({M, F}, rows.out.options()), out = at::zeros_like(wanted);
      const GateMultiply<Bf16> gate{data<Bf16>(rows.out), data<Bf16>(wanted), F, Activation::kSilu};
      launch(gate, gate.shape(M), gpu_queue());
      const GateEnds end{data<Bf16>(out), static_cast<int>(F), Activation::kSilu};
      ASSERT_TRUE(gate_product(rows.arguments, c.bits, c.group, end, gpu_queue()));
      EXPECT_TRUE(at::equal(out, wanted)) << "gate";

      constexpr std::int64_t H = 4, K = 1, E = 128;
      const auto floats = rows.out.options().dtype(at::kFloat);
      const at::Tensor cos = at::rand({M, E / 2}, floats), sin = at::rand({M, E / 2}, floats),
                       places = at::arange(M, floats.dtype(at::kInt)), slots = at::arange(M, floats.dtype(at::kLong)),
                       keys = at::zeros({1, K, kPageSlots, E}, rows.out.options()), values = at::zeros_like(keys),
                       keys_2 = at::zeros_like(keys), values_2 = at::zeros_like(keys), qkv = at::zeros_like(rows.out);
      const RotateHeads<Bf16> heads{data<Bf16>(rows.out),
                                    data<float>(cos),
                                    data<float>(sin),
                                    data<std::int32_t>(places),
                                    nullptr,
                                    nullptr,
                                    data<Bf16>(keys),
                                    data<Bf16>(values),
                                    data<std::int64_t>(slots),
                                    H,
                                    K,
                                    E,
                                    E,
                                    1e-6f};
      launch(heads, heads.shape(M), gpu_queue());
      RotatedEnds rotated{heads};
      rotated.heads.qkv_TQ = data<Bf16>(qkv);
      rotated.heads.key_pages = data<Bf16>(keys_2);
      rotated.heads.value_pages = data<Bf16>(values_2);
      ASSERT_TRUE(rotate_product(rows.arguments, c.bits, c.group, rotated, gpu_queue()));
      EXPECT_TRUE(at::equal(qkv, rows.out)) << "rotation";
      EXPECT_TRUE(at::equal(keys_2, keys) && at::equal(values_2, values)) << "pages";
    }
  }
}

TEST(RowNorm, HasTheBitsOfTheNormOfManyRows) {
  at::manual_seed(4);
  for (const std::int64_t D : {576, 4096, 8192}) {
    const Tensors inputs = {at::randn({2, D}),   at::randn({2, D}),
                            at::rand({D}) + 0.5, at::zeros({2, D}, at::kBFloat16),
                            at::zeros({2, D}),   at::zeros({2, D}, at::kBFloat16)};
    const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
      t[4].copy_(t[0]);
      AddRmsNorm<Bf16, float> norm{data<float>(t[0]), data<float>(t[1]), data<float>(t[2]), data<Bf16>(t[3]), D, 1e-5f};
      launch(norm, norm.shape(2), queue);
      norm.hidden_TD = data<float>(t[4]);
      norm.out_TD = data<Bf16>(t[5]);
      const AddRowNorm<4> of_rows{norm};
      launch(of_rows, of_rows.shape(2), queue);
    });
    for (const Tensors& t : {both.host, both.device}) {
      EXPECT_TRUE(at::equal(t[4], t[0])) << D;
      EXPECT_TRUE(at::equal(t[5], t[3])) << D;
    }
  }
}

}  // namespace
}  // namespace magister::gpu::kernels_test
