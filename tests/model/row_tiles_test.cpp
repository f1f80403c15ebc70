// Row tiles of a pass on a CPU: the bits of a row depend neither on the size of tiles, which is 128 rows with the AVX2
// kernels and 256 with others, nor on the number of threads, nor on the rows of other texts.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"
#include "model/random_weights_of.h"

namespace magister {
namespace row_tiles_test {

class RowTiles : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(17);
    description_.config = small_llama();
    description_.names = hf_tensor_names(description_.config);
    add_random_weights(file_, description_, 0.12);
  }
  void TearDown() override { use_cpu_kernels(before_); }

  // Hidden states of texts that are packed into one batch, [T, D].
  at::Tensor hidden(const std::vector<std::vector<TokenId>>& texts, int threads) {
    auto groups = make_thread_process_groups(1);
    ThreadPool pool(threads);
    Transformer model(description_, file_, *groups.front(), pool, at::kFloat, QuantScheme{});
    return model.forward(pack_sequences(texts)).clone();
  }

  const CpuKernels& before_ = cpu_kernels();
  ModelDescription description_;
  MemoryTensorFile file_;
};

TEST_F(RowTiles, ChangeNoBits) {
  for (const CpuKernels* kernels : cpu_kernels_here()) {
    use_cpu_kernels(*kernels);
    const bool is_avx2 = kernels == &cpu_kernels_avx2();
    EXPECT_EQ(rows_of_tile(), is_avx2 ? 128 : 256);
    // Both texts together have 127 to 300 rows: one below, at and above the most that one and two tiles of 128 take.
    for (const std::size_t more : {27, 28, 29, 60, 155, 156, 157, 200}) {
      const std::vector<TokenId> first = some_text(100, 1), second = some_text(more, 2);
      const at::Tensor one_thread = hidden({first, second}, 1);
      const std::string where = std::string(kernels->name) + ", " + std::to_string(100 + more) + " rows";
      EXPECT_TRUE(at::equal(one_thread, hidden({first, second}, 3))) << where << ", 3 threads";
      EXPECT_TRUE(at::equal(one_thread.narrow(0, 0, 100), hidden({first}, 1))) << where << ", first text alone";
      EXPECT_TRUE(at::equal(one_thread.narrow(0, 100, static_cast<std::int64_t>(more)), hidden({second}, 1)))
          << where << ", second text alone";
    }
  }
}

}  // namespace row_tiles_test
}  // namespace magister
