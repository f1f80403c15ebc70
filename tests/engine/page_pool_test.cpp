// Pages are shared by their content, and given up in the order of their last use.
#include "magister/engine/page_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace magister {
namespace page_pool_test {

TEST(PagePool, SharesFindsAndEvicts) {
  PagePool pool(3);
  std::vector<TokenId> a(48, 1), b(48, 2);
  const auto first = pool.allocate();
  const auto prefix = pool.cache(*first, 0, a);
  EXPECT_FALSE(pool.find_cached(0, b));
  EXPECT_FALSE(pool.find_cached(prefix, a));
  const auto found = pool.find_cached(0, a);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->page, *first);
  EXPECT_EQ(found->prefix, prefix);
  pool.free(*first);
  pool.free(*first);
  EXPECT_EQ(pool.num_available(), 3);
  pool.allocate();
  pool.allocate();
  EXPECT_TRUE(pool.find_cached(0, a)) << "the cached page is the last to go";
  pool.free(*first);
  EXPECT_EQ(pool.allocate(), first);
  EXPECT_FALSE(pool.find_cached(0, a));
  EXPECT_FALSE(pool.allocate());
}

}  // namespace page_pool_test
}  // namespace magister
