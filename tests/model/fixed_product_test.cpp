// The algorithm of a library that a weight gets: the first whose rows have the same bits among any number of others.
// The library is simulated: its products are ATen's, and some of its algorithms behave like cuBLAS's: other sums from a
// number of rows on, or at another position.
#include "model/gpu/fixed_product.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "magister/device/launch_watch.h"
#include "model/gpu/gpu_linear.h"
#include "model/pretended_algorithms.h"
#include "model/self_test.h"

namespace magister::gpu {
namespace fixed_product_test {

// The last bit of an output, as another order of sums gives it.
void change_a_bit(at::Tensor out_MN, std::int64_t row) { out_MN[row][3].mul_(1.01); }

Pretended::Algorithm other_sums_when(std::function<bool(std::int64_t rows)> rule, bool last_row_alone) {
  return [=](const ProductFactors& factors, at::Tensor& out) {
    good(factors, out);
    if (!rule(factors.x_MK.size(0))) return true;
    if (last_row_alone) {
      change_a_bit(out, out.size(0) - 1);
    } else {
      for (std::int64_t row = 0; row < out.size(0); ++row) change_a_bit(out, row);
    }
    return true;
  };
}

FixedProduct chosen_of(std::vector<Pretended::Algorithm> algorithms, at::ScalarType out_type = at::kBFloat16) {
  at::manual_seed(4);
  const at::Tensor weight_NK = (at::randn({48, 96}) * 0.1).to(at::kBFloat16),
                   block_BK = self_test_block(kTriedBlock, 96).to(at::kBFloat16);
  return choose_product(std::make_shared<Pretended>(std::move(algorithms)), {block_BK, weight_NK}, out_type, Queue{});
}

TEST(FixedProduct, TheFirstWhoseRowsAreTheirOwn) {
  EXPECT_EQ(chosen_of({good, good}).chosen, 0);
  for (const std::int64_t rows : kTriedRows) {
    const auto from_there = other_sums_when([rows](std::int64_t M) { return M == rows; }, false);
    EXPECT_EQ(chosen_of({from_there, good}).chosen, 1) << "other sums for " << rows << " rows";
    const auto at_the_end = other_sums_when([rows](std::int64_t M) { return M == rows; }, true);
    EXPECT_EQ(chosen_of({at_the_end, good}).chosen, 1) << "other sums in the last of " << rows << " rows";
  }
  // As many rows as passes have: a library's behaviour with a few thousand rows does not show its behaviour with more.
  for (const std::int64_t rows : {8192, 16384}) {
    const auto from_there = other_sums_when([rows](std::int64_t M) { return M >= rows; }, false);
    EXPECT_EQ(chosen_of({from_there, good}).chosen, 1) << "other sums from " << rows << " rows on";
  }
  for (const at::ScalarType out_type : {at::kBFloat16, at::kFloat}) {
    const auto many = other_sums_when([](std::int64_t M) { return M > 256; }, false);
    EXPECT_EQ(chosen_of({many, many, good}, out_type).chosen, 2);
    EXPECT_FALSE(chosen_of({many, many}, out_type).defined());
  }
}

// A library's tiles have 64, 128 or 256 rows, and a position in one may have its own order of sums: for one row or for
// the later half.
TEST(FixedProduct, ARowsPlaceInATileDoesNotMatter) {
  for (const std::int64_t tile : {64, 128, 256}) {
    for (const bool half : {false, true}) {
      const auto by_place = [=](const ProductFactors& factors, at::Tensor& out) {
        good(factors, out);
        for (std::int64_t row = tile / 2; row < out.size(0); ++row) {
          if (half ? row % tile >= tile / 2 : row % tile == tile - 2) change_a_bit(out, row);
        }
        return true;
      };
      EXPECT_EQ(chosen_of({by_place, good}).chosen, 1) << "tiles of " << tile << " rows";
    }
  }
}

TEST(FixedProduct, WhatDoesNotTakeTheRowsOrIsNotTheProductIsNotTaken) {
  const auto refuses = [](const ProductFactors& factors, at::Tensor& out) {
    return factors.x_MK.size(0) != 1000 && good(factors, out);
  };
  const auto turned = [](const ProductFactors& factors, at::Tensor& out) {
    return good({factors.x_MK, factors.weight_NK.flip(0)}, out);
  };
  const auto nothing = [](const ProductFactors&, at::Tensor& out) {
    out.fill_(std::numeric_limits<float>::quiet_NaN());
    return true;
  };
  EXPECT_EQ(chosen_of({refuses, turned, nothing, good}).chosen, 3);
  EXPECT_FALSE(chosen_of({}).defined());
  EXPECT_FALSE(choose_product(nullptr, {}, at::kFloat, Queue{}).defined()) << "a host";
  const auto too_large = [](const ProductFactors& factors, at::Tensor& out) {
    TORCH_CHECK_WITH(OutOfMemoryError, factors.x_MK.size(0) < 4096, "no memory");
    return good(factors, out);
  };
  EXPECT_EQ(chosen_of({too_large, good}).chosen, 0) << "no pass has so many rows, either";
}

// A pass goes through it at once, whatever its length, with the weight's bias; without one through tiles.
TEST(FixedProduct, IsHowAPassMultiplies) {
  at::manual_seed(8);
  for (const bool float_out : {false, true}) {
    GpuLinear linear = to_device(Linear{(at::randn({48, 96}) * 0.1).to(at::kBFloat16), at::randn({48})}, at::kCPU);
    linear.float_out = float_out;
    const auto library = std::make_shared<Pretended>(
        std::vector<Pretended::Algorithm>{other_sums_when([](std::int64_t M) { return M > 500; }, false), good});
    find_tile_sizes(linear, at::kBFloat16, Queue{}, library);
    ASSERT_EQ(linear.fixed.chosen, 1);
    const at::Tensor x_MK = at::randn({777, 96}).to(at::kBFloat16);
    library->rows.clear();
    const at::Tensor out_MN = product_in_tiles(linear, x_MK, linear.pass_tiles, Queue{});
    EXPECT_EQ(library->rows, std::vector<std::int64_t>{777});
    EXPECT_EQ(out_MN.scalar_type(), float_out ? at::kFloat : at::kBFloat16);
    const at::Tensor wanted = exact({x_MK, linear.weight_NK}) + linear.bias_N;
    EXPECT_LE((out_MN.to(at::kDouble) - wanted).abs().max().item<double>(), float_out ? 2e-6 : 6e-2);
    for (const auto& [first, rows] : {std::pair{0, 1}, {700, 77}, {13, 512}})
      EXPECT_TRUE(at::equal(product_in_tiles(linear, x_MK.narrow(0, first, rows), linear.pass_tiles, Queue{}),
                            out_MN.narrow(0, first, rows)));
    library->rows.clear();
    find_tile_sizes(linear, at::kBFloat16, Queue{},
                    std::make_shared<Pretended>(std::vector<Pretended::Algorithm>{
                        other_sums_when([](std::int64_t M) { return M > 500; }, false)}));
    EXPECT_FALSE(linear.fixed.defined());
    const at::Tensor tiled_MN = product_in_tiles(linear, x_MK, linear.pass_tiles, Queue{});
    EXPECT_LE((tiled_MN.to(at::kDouble) - wanted).abs().max().item<double>(), float_out ? 2e-5 : 6e-2);
  }
}

// A watch that times the calls of a pass sees a library's product with its sizes.
TEST(FixedProduct, IsSeenByAWatch) {
  struct Watch final : LaunchWatch {
    Watch() { launch_watch = this; }
    ~Watch() override { launch_watch = nullptr; }
    void begin(const char* name, const WatchedProduct& product) override {
      seen.push_back(std::string(name) + " " + std::to_string(product.M) + " " + std::to_string(product.N) + " " +
                     std::to_string(product.K));
    }
    void end() override { ++ended; }
    std::vector<std::string> seen;
    int ended = 0;
  };
  const FixedProduct fixed = chosen_of({good});
  at::Tensor out_MN = at::empty({5, 48}, at::kBFloat16);
  const ProductFactors zeros{at::zeros({5, 96}, at::kBFloat16), at::zeros({48, 96}, at::kBFloat16)};
  Watch watch;
  fixed.multiply(zeros, out_MN, Queue{});
  EXPECT_EQ(watch.seen, std::vector<std::string>{"cublasLtMatmul 5 48 96"});
  EXPECT_EQ(watch.ended, 1);
}

// The same with 8-bit floats: rows and their scales reach the library unchanged, and an algorithm that ignores a scale
// is rejected.
TEST(FixedProduct, EightBitFloatsHaveOneToo) {
  at::manual_seed(9);
  for (const bool float_out : {false, true}) {
    GpuLinear linear = to_device(
        Linear{(at::randn({48, 96}) * 0.1 * at::exp(at::randn({48, 1}))).to(at::kBFloat16), at::randn({48})}, at::kCPU);
    to_fp8(linear, Queue{});
    linear.float_out = float_out;
    const auto without = [](bool rows) {
      return [rows](const ProductFactors& factors, at::Tensor& out) {
        ProductFactors less = factors;
        (rows ? less.scale_M1 : less.weight_scale_1N) = at::ones({1, 1});
        return good(less, out);
      };
    };
    const auto library = std::make_shared<Pretended>(std::vector<Pretended::Algorithm>{
        without(true), without(false), other_sums_when([](std::int64_t M) { return M > 500; }, true), good});
    find_tile_sizes(linear, at::kBFloat16, Queue{}, library);
    ASSERT_EQ(linear.fixed.chosen, 3);
    const at::Tensor x_MK = (at::randn({777, 96}) * at::exp(at::randn({777, 1}))).to(at::kBFloat16);
    library->rows.clear();
    const at::Tensor out_MN = product_in_tiles(linear, {x_MK}, linear.pass_tiles, Queue{});
    EXPECT_EQ(library->rows, std::vector<std::int64_t>{777});
    EXPECT_EQ(out_MN.scalar_type(), float_out ? at::kFloat : at::kBFloat16);
    linear.fixed = {};
    const at::Tensor tiled_MN = product_in_tiles(linear, {x_MK}, linear.pass_tiles, Queue{});
    EXPECT_LE((out_MN - tiled_MN).abs().max().item<double>(), 0.01 * tiled_MN.abs().max().item<double>());
  }
}

#if defined(MAGISTER_HAVE_CUDA)
// The part that a machine without a GPU can test: libtorch brings the library, and it has the functions that are looked
// up.
TEST(FixedProduct, TheLibraryHasTheFunctionsThatAreAskedOfIt) {
  load_gpu_libraries();
  EXPECT_TRUE(has_cublas_lt());
  EXPECT_EQ(lt_algorithms(64, 64, at::kBFloat16, at::kFloat, Queue{}), nullptr) << "not on the host";
}
#endif

TEST(FixedProduct, AnAlgorithmThatFailsInTheMiddleOfAPassIsToldOf) {
  bool works = true;
  const FixedProduct fixed =
      chosen_of({[&](const ProductFactors& factors, at::Tensor& out) { return works && good(factors, out); }});
  ASSERT_TRUE(fixed.defined());
  works = false;
  at::Tensor out_MN = at::empty({5, 48}, at::kBFloat16);
  const ProductFactors zeros{at::zeros({5, 96}, at::kBFloat16), at::zeros({48, 96}, at::kBFloat16)};
  EXPECT_THROW(fixed.multiply(zeros, out_MN, Queue{}), Error);
}

}  // namespace fixed_product_test
}  // namespace magister::gpu
