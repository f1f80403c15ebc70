// Codes of a file that are kept: the weights are the format's arithmetic in double rounded once to f32, and the
// products equal those of the same weights in f32 panels bit by bit; over slices that begin inside a group, heads of
// rotary pairs and threads.
#include "model/cpu/kept_codes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace kept_codes_test {

using Scale = CodeFormat::Scale;
using Offset = CodeFormat::Offset;

at::Tensor product(const at::Tensor& x_MK, const Linear& linear) {
  at::Tensor out_MN =
      at::full({x_MK.size(0), linear.out_features()}, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
  linear_tile(x_MK.const_data_ptr<float>(), x_MK.stride(0), x_MK.size(0), linear, out_MN.data_ptr<float>(),
              out_MN.size(1), false);
  return out_MN;
}

// One tensor "w" of random codes.
class CodesFile final : public TensorFile {
 public:
  CodesFile(const CodeFormat& format, std::int64_t N, std::int64_t K) : format_(format) {
    const std::int64_t groups = format.group == 0 ? 1 : (K + format.group - 1) / format.group;
    codes_NK = at::randint(0, std::int64_t{1} << format.bits, {N, K}, at::kByte);
    scales_NG = (at::randn({N, groups}) * 0.01).to(format.scale == Scale::kF16 ? at::kHalf : at::kBFloat16);
    offsets_NG =
        (format.offset == Offset::kMinimum ? at::randn({N, groups})
                                           : at::randint(0, std::int64_t{1} << format.bits, {N, groups}).to(at::kFloat))
            .to(at::kHalf);
  }
  // In double, rounded to f32 at the end.
  at::Tensor weights() const {
    const at::Tensor group_K =
        at::arange(codes_NK.size(1), at::kLong).div(format_.group == 0 ? codes_NK.size(1) : format_.group, "floor");
    const at::Tensor code = codes_NK.to(at::kDouble), scale = scales_NG.to(at::kDouble).index_select(1, group_K);
    const at::Tensor offset = offsets_NG.to(at::kDouble).index_select(1, group_K);
    if (format_.offset == Offset::kMiddle) return ((code - (1 << (format_.bits - 1))) * scale).to(at::kFloat);
    return (format_.offset == Offset::kZero ? (code - offset) * scale : code * scale + offset).to(at::kFloat);
  }

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const Metadata& metadata() const override { return metadata_; }
  const std::vector<std::string>& paths() const override { return paths_; }
  void read(const std::string&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, at::Tensor) const override {
    FAIL();
  }
  std::optional<CodeFormat> code_format(const std::string&) const override { return format_; }
  void read_codes(const std::string&, IndexRange rows, IndexRange columns, const CodeWindow& out) const override {
    const std::int64_t group = format_.group == 0 ? codes_NK.size(1) : format_.group;
    for (auto row = static_cast<std::int64_t>(rows.begin); row < static_cast<std::int64_t>(rows.end); ++row) {
      const std::int64_t to = row - static_cast<std::int64_t>(rows.begin),
                         first = static_cast<std::int64_t>(columns.begin) / group;
      for (auto k = static_cast<std::int64_t>(columns.begin); k < static_cast<std::int64_t>(columns.end); ++k) {
        const std::int64_t g = k / group, at = g + row * scales_NG.size(1);
        out.codes[to * out.codes_stride + k - static_cast<std::int64_t>(columns.begin)] =
            codes_NK.const_data_ptr<std::uint8_t>()[row * codes_NK.size(1) + k];
        out.scales[to * out.groups_stride + g - first] =
            static_cast<const std::uint16_t*>(scales_NG.const_data_ptr())[at];
        if (out.offsets != nullptr)
          out.offsets[to * out.groups_stride + g - first] =
              static_cast<const std::uint16_t*>(offsets_NG.const_data_ptr())[at];
      }
    }
  }
  at::Tensor codes_NK, scales_NG, offsets_NG;

 private:
  CodeFormat format_;
  std::vector<TensorInfo> infos_;
  Metadata metadata_;
  std::vector<std::string> paths_;
};

using Shape = std::tuple<std::int64_t, std::int64_t>;  // outputs, inputs

class Kept : public testing::TestWithParam<std::tuple<Shape, std::int64_t, std::int64_t, Scale, Offset>> {
 protected:
  void SetUp() override {
    at::manual_seed(11);
    const auto& [shape, bits, group, scale, offset] = GetParam();
    format_ = {bits, group, scale, offset};
    scheme_ = {bits == 8 ? QuantType::kInt8 : QuantType::kInt4, 128};
    file_ = std::make_unique<CodesFile>(format_, std::get<0>(shape), std::get<1>(shape));
    weights_NK_ = file_->weights();
  }
  Linear keep(IndexRange columns, ThreadPool* pool = nullptr) const {
    const auto N = static_cast<std::uint64_t>(weights_NK_.size(0)), half = N / 2;
    return keep_codes(*file_, {{"w", {half, N}, 0}, {"w", {0, half}, static_cast<std::int64_t>(N - half)}},
                      weights_NK_.size(0), format_, scheme_, columns, pool);
  }
  CodeFormat format_;
  QuantScheme scheme_;
  std::unique_ptr<CodesFile> file_;
  at::Tensor weights_NK_;
};

TEST_P(Kept, AreTheWeightsOfTheFormat) {
  const std::int64_t N = weights_NK_.size(0), K = weights_NK_.size(1);
  const at::Tensor turned_NK = at::cat({weights_NK_.slice(0, N / 2), weights_NK_.slice(0, 0, N / 2)});
  ThreadPool pool(3);
  for (const std::int64_t shards : {1, 2, 3, 7}) {
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      const std::int64_t begin = K * shard / shards, size = K * (shard + 1) / shards - begin;
      if (size == 0) continue;
      const IndexRange columns{static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(begin + size)};
      const Linear linear = keep(columns, shard % 2 == 0 ? &pool : nullptr);
      const at::Tensor want_NK = turned_NK.narrow(1, begin, size).contiguous();
      ASSERT_TRUE(at::equal(linear.plain_weight(), want_NK)) << shard << " of " << shards;
      const std::uint64_t bytes = linear.panels_PKW.nbytes() + linear.scales_PGW.nbytes() +
                                  (linear.offsets_PGW.defined() ? linear.offsets_PGW.nbytes() : 0);
      ASSERT_EQ(bytes, scheme_.of(format_).bytes(N, columns, format_.offset != Offset::kMiddle));
      for (const std::int64_t rows : {1, 2, 3, 5, 9, 300}) {
        const at::Tensor x_MK = at::randn({rows, size});
        ASSERT_TRUE(at::equal(product(x_MK, linear), product(x_MK, pack({want_NK, {}})))) << rows << " rows";
      }
    }
  }
  const Linear whole = keep({0, static_cast<std::uint64_t>(K)});
  const std::int64_t begin = (N - 1) / Linear::kPanel * Linear::kPanel;
  EXPECT_TRUE(at::equal(whole.outputs(begin, N).plain_weight(), turned_NK.slice(0, begin)));
}

INSTANTIATE_TEST_SUITE_P(Formats, Kept,
                         testing::Combine(testing::Values(Shape{50, 96}, Shape{131, 224}), testing::Values(4, 8),
                                          testing::Values(0, 32, 64, 128), testing::Values(Scale::kBF16, Scale::kF16),
                                          testing::Values(Offset::kMiddle, Offset::kZero, Offset::kMinimum)));

TEST(KeptCodes, HeadsOfPairsBecomeHalves) {
  const CodeFormat format{4, 32, Scale::kF16, Offset::kMinimum};
  const CodesFile file(format, 24, 64);
  const at::Tensor weights_NK = file.weights();
  const Linear linear = keep_codes(file, {{"w", {0, 12}, 0, true}, {"w", {12, 24}, 12, true}}, 24, format,
                                   {QuantType::kInt4, 32}, {0, 64}, nullptr);
  for (std::int64_t row = 0; row < 24; ++row) {
    const std::int64_t head = row / 12, place = row % 12, output = head * 12 + place / 2 + place % 2 * 6;
    EXPECT_TRUE(at::equal(linear.plain_weight()[output], weights_NK[row])) << row;
  }
}

TEST(KeptCodes, KernelsWidenAlike) {
  const CpuKernels* wide = cpu_kernels_avx512();
  if (wide == nullptr) GTEST_SKIP() << "this CPU has no AVX-512 to compare with AVX2";
  const std::int64_t k = 211, lead = 13;
  const at::Tensor words = at::randint(-2147483648LL, 2147483647LL, {(lead + k + 3) / 4, 48}, at::kInt);
  const at::Tensor scales = at::randn({8, 48}).to(at::kHalf), offsets = at::randn({8, 48}).to(at::kHalf);
  QuantizedPanel panel{reinterpret_cast<const std::uint32_t*>(words.const_data_ptr<std::int32_t>()),
                       static_cast<const std::uint16_t*>(scales.const_data_ptr()), 32, lead};
  panel.half_scales = true;
  panel.offsets = static_cast<const std::uint16_t*>(offsets.const_data_ptr());
  for (int format = 2; format < kNumQuantFormats; ++format) {
    at::Tensor widened[2] = {at::zeros({k, 48}), at::zeros({k, 48})};
    int which = 0;
    for (const CpuKernels* kernels : {&cpu_kernels_avx2(), wide})
      kernels->widen_quantized[format](panel, 0, k, widened[which++].data_ptr<float>());
    ASSERT_TRUE(at::equal(widened[0], widened[1])) << format;
  }
}

TEST(KeptCodes, ScalesThatAreNoNumbersAreRefused) {
  const CodeFormat format{8, 32, Scale::kF16, Offset::kMinimum};
  for (const bool scale : {true, false}) {
    CodesFile file(format, 5, 64);
    (scale ? file.scales_NG : file.offsets_NG)[3][1] = std::numeric_limits<double>::infinity();
    EXPECT_THROW(keep_codes(file, {{"w", {0, 5}, 0}}, 5, format, {QuantType::kInt8, 32}, {0, 64}, nullptr), Error);
    EXPECT_NO_THROW(keep_codes(file, {{"w", {0, 3}, 0}}, 3, format, {QuantType::kInt8, 32}, {0, 64}, nullptr));
  }
}

TEST(KeptCodes, AGivenGroupIsWanted) {
  const CodeFormat codes{4, 64, Scale::kF16, Offset::kZero};
  EXPECT_TRUE((QuantScheme{QuantType::kInt4, 32}).keeps(codes));
  EXPECT_FALSE((QuantScheme{QuantType::kInt4, 32, true}).keeps(codes));
  EXPECT_TRUE((QuantScheme{QuantType::kInt4, 64, true}).keeps(codes));
  EXPECT_TRUE((QuantScheme{QuantType::kInt8, 64}).keeps(codes));  // narrower ones lose nothing
  EXPECT_EQ((QuantScheme{QuantType::kInt8, 128}).of(codes), (QuantScheme{QuantType::kInt4, 64}));
  EXPECT_FALSE((QuantScheme{QuantType::kInt8, 64, true}).keeps(codes));
  EXPECT_FALSE((QuantScheme{QuantType::kInt4, 32}).keeps({8, 32, Scale::kF16, Offset::kMiddle}));
  EXPECT_FALSE(QuantScheme{}.keeps(codes));
}

}  // namespace kept_codes_test
}  // namespace magister
