// Adds in blocks of fixed length, so that the compiler vectorises the inner loops. An element is added in shard order,
// whatever the block.
#include "parallel/ordered_sum.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::size_t kBlock = 256;  // 1 KiB of fp32: sums stay in registers and the L1 cache

// Integers wrap as in ATen: unsigned arithmetic has no undefined overflow.
template <typename T>
struct Wide {
  using Type = float;
};
template <>
struct Wide<double> {
  using Type = double;
};
template <>
struct Wide<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Wide<std::int64_t> {
  using Type = std::uint64_t;
};

template <typename T>
void add_typed(const std::vector<const std::byte*>& contributions, std::byte* out, std::size_t count) {
  using W = typename Wide<T>::Type;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    T part[kBlock] = {};
    W sum[kBlock];
    for (std::size_t shard = 0; shard < contributions.size(); ++shard) {
      std::memcpy(part, contributions[shard] + begin * sizeof(T), length * sizeof(T));
      if (shard == 0) {  // not 0 + x, which would turn -0 into 0
        for (std::size_t i = 0; i < kBlock; ++i) sum[i] = static_cast<W>(part[i]);
      } else {
        for (std::size_t i = 0; i < kBlock; ++i) sum[i] += static_cast<W>(part[i]);
      }
    }
    for (std::size_t i = 0; i < kBlock; ++i) part[i] = static_cast<T>(sum[i]);
    std::memcpy(out + begin * sizeof(T), part, length * sizeof(T));
  }
}

}  // namespace

void add_in_shard_order(c10::ScalarType type, const std::vector<const std::byte*>& contributions, std::byte* out,
                        std::size_t count) {
  switch (type) {
    case c10::ScalarType::Float:
      return add_typed<float>(contributions, out, count);
    case c10::ScalarType::Double:
      return add_typed<double>(contributions, out, count);
    case c10::ScalarType::BFloat16:
      return add_typed<c10::BFloat16>(contributions, out, count);
    case c10::ScalarType::Half:
      return add_typed<c10::Half>(contributions, out, count);
    case c10::ScalarType::Int:
      return add_typed<std::int32_t>(contributions, out, count);
    case c10::ScalarType::Long:
      return add_typed<std::int64_t>(contributions, out, count);
    default:
      fail(ExitCode::kInternal,
           "a sum over shards of {} (only f32, f64, bf16, f16, i32 and i64 are added); report this",
           c10::toString(type));
  }
}

}  // namespace magister
