// A cache of keys and values costs what is written into it, and a page's copy is the page.
#include "magister/model/kv_pages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <vector>

namespace magister {
namespace kv_pages_test {

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

TEST(KvPages, ALargeCacheTakesMemoryWhenItIsWritten) {
  const std::uint64_t before = resident_bytes();
  KvPages pages(4, 50'000, 64);  // 4.9 GB
  EXPECT_LT(resident_bytes(), before + (64u << 20));
  const std::vector<float> ones(64, 1.0f);
  const std::int32_t page = 49'999;
  for (std::int64_t head = 0; head < 4; ++head) pages.write(head, {&page, 0}, 5, ones.data(), ones.data());
  EXPECT_EQ(pages.key_page(3, page)[63 * KvPages::kSlots + 5], 1.0f);
  EXPECT_EQ(pages.key_page(3, page)[63 * KvPages::kSlots + 6], 0.0f) << "slots of no token are zero";
  EXPECT_EQ(pages.value_page(3, page)[5 * 64 + 63], 1.0f);
  EXPECT_LT(resident_bytes(), before + (64u << 20));
}

TEST(KvPages, ACopiedPageIsThePage) {
  KvCache cache;
  for (int layer = 0; layer < 2; ++layer) cache.layers.emplace_back(3, 5, 8);
  std::vector<float> key(8), value(8);
  const std::int32_t from = 1;
  for (KvPages& layer : cache.layers) {
    for (std::int64_t head = 0; head < 3; ++head) {
      for (std::int64_t slot = 0; slot < 48; ++slot) {
        for (std::size_t e = 0; e < 8; ++e) {
          key[e] = static_cast<float>(head * 1000 + slot * 10) + static_cast<float>(e);
          value[e] = -key[e];
        }
        layer.write(head, {&from, 0}, slot, key.data(), value.data());
      }
    }
  }
  cache.copy_pages({1, 1}, {4, 0});
  for (const KvPages& layer : cache.layers) {
    for (std::int64_t head = 0; head < 3; ++head) {
      for (const std::int64_t to : {4, 0}) {
        EXPECT_TRUE(std::equal(layer.key_page(head, 1), layer.key_page(head, 1) + 48 * 8, layer.key_page(head, to)));
        EXPECT_TRUE(
            std::equal(layer.value_page(head, 1), layer.value_page(head, 1) + 48 * 8, layer.value_page(head, to)));
      }
      EXPECT_EQ(layer.key_page(head, 2)[0], 0.0f);
    }
  }
}

}  // namespace kv_pages_test
}  // namespace magister
