// The weights that a training begins with: read by threads and by the ranks of a host together, bit for bit as by one
// thread.
#include "magister/train/first_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <new>

#include "magister/core/error.h"
#include "magister/train/fresh_zeros.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"

namespace magister {
namespace first_weights_test {

class FirstWeights : public testing::Test {
 protected:
  void SetUp() override {
    ModelConfig& config = description_.config;
    config.vocab_size = 3000;
    config.hidden_size = 512;
    config.intermediate_size = 96;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 128;
    config.tie_word_embeddings = false;
    description_.names = hf_tensor_names(config);
    for (const ExpectedTensor& tensor : expected_tensors(config, description_.names))
      file_.add(tensor.name, tensor.shape);
  }
  ModelDescription description_;
  MemoryTensorFile file_;
};

TEST_F(FirstWeights, AreTheSameForAnyNumberOfThreadsAndRanks) {
  const Communicator world = Communicator::world(), host = world.split_by_host();
  const ParameterLayout layout(description_);
  at::Tensor plain = at::zeros({layout.flat_size()});
  for (std::size_t i = 0; i < layout.all().size(); ++i) layout.view(plain, i).copy_(file_.values(layout.all()[i].name));
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const bool may_share : {false, true}) {
      HostWeights weights(world, host, layout.flat_size(), may_share);
      read_first_weights(layout, file_, weights, host, {}, pool);
      EXPECT_TRUE(at::equal(weights.tensor(), plain));
      host.barrier();  // a shared copy goes when all have looked
    }
  }
  at::Tensor in_parts = fresh_zeros(layout.flat_size());
  for (int part = 0; part < 5; ++part) layout.read(file_, in_parts, {}, nullptr, part, 5);
  EXPECT_TRUE(at::equal(in_parts, plain));
}

// At any place, and whichever rank reads it.
TEST_F(FirstWeights, BadNumbersAreEveryRanksError) {
  const Communicator world = Communicator::world(), host = world.split_by_host();
  const ParameterLayout layout(description_);
  ThreadPool pool(2);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t i : {std::size_t{0}, layout.all().size() / 2, layout.all().size() - 1}) {
      at::Tensor values = file_.values(layout.all()[i].name).view({-1});
      const float good = values[values.size(0) - 1].item<float>();
      values[values.size(0) - 1] = bad;
      HostWeights weights(world, host, layout.flat_size(), true);
      try {
        read_first_weights(layout, file_, weights, host, {}, pool);
        ADD_FAILURE() << "was read";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kData);
        EXPECT_NE(std::string(error.what()).find(layout.all()[i].name), std::string::npos) << error.what();
      }
      values[values.size(0) - 1] = good;
    }
  }
}

// An error of another type on one rank, as of an allocation, becomes every rank's, too.
TEST_F(FirstWeights, AnErrorOfAnyTypeIsEveryRanksError) {
  class NoMemory : public MemoryTensorFile {
   public:
    explicit NoMemory(const MemoryTensorFile& file) : MemoryTensorFile(file) {}
    void read(const std::string&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, at::Tensor) const override {
      throw std::bad_alloc();
    }
  };
  const Communicator world = Communicator::world(), host = world.split_by_host();
  const ParameterLayout layout(description_);
  ThreadPool pool(2);
  const NoMemory bad(file_);
  const bool is_last = host.rank() + 1 == host.size();
  for (const bool may_share : {false, true}) {
    HostWeights weights(world, host, layout.flat_size(), may_share);
    try {
      read_first_weights(layout, is_last ? static_cast<const TensorFile&>(bad) : file_, weights, host, {}, pool);
      ADD_FAILURE() << "was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInternal);
      EXPECT_NE(std::string(error.what()).find("memory is used up"), std::string::npos) << error.what();
    }
    host.barrier();
  }
}

TEST(FreshZeros, AreZerosThatCanBeWritten) {
  EXPECT_EQ(fresh_zeros(0).numel(), 0);
  at::Tensor zeros = fresh_zeros(3'000'001);
  EXPECT_EQ(zeros.count_nonzero().item<std::int64_t>(), 0);
  const at::Tensor part = zeros.narrow(0, 2'999'999, 2);
  zeros.fill_(2);
  zeros = at::Tensor();
  EXPECT_EQ(part.sum().item<float>(), 4);  // a view keeps the memory
}

}  // namespace first_weights_test
}  // namespace magister
