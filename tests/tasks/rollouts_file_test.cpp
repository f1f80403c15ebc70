// Results of task rollout read back: cuts that the task can draw are accepted, others are refused with their record.
#include "magister/tasks/rollout/rollouts_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "tasks/rollout/worker.h"

namespace magister {
namespace rollouts_file_test {

namespace fs = std::filesystem;

class RolloutsOnDisk : public testing::Test {
 protected:
  RolloutsOnDisk() : folder_(fs::temp_directory_path() / fmt::format("magister_rollouts_{}", ::getpid())) {
    fs::create_directories(folder_);
  }
  ~RolloutsOnDisk() override { fs::remove_all(folder_); }

  // A complete file of one record: a prompt of 2 tokens, this roll-in, and one continuation after each of two cuts.
  std::string write(const std::vector<TokenId>& roll_in, const std::vector<std::uint32_t>& cuts) const {
    const RolloutShape shape{.num_records = 1, .num_tokens = 2, .key_bytes = 1, .cuts = 2, .n = 1, .slots = 8};
    ResultsSpec spec;
    spec.columns = rollout_columns(shape);
    spec.num_units = 1;
    spec.attributes = {{"format", std::string("magister.rollout")},
                       {"format_version", std::uint64_t{1}},
                       {"num_samples", std::uint64_t{1}},
                       {"num_tokens", std::uint64_t{2}}};
    const std::string path = (folder_ / "x.h5").string();
    fs::remove(path);
    ResultsFile file = ResultsFile::create(world_, path, spec);
    const auto put = [&](const char* column, const auto& values) {
      file.write(column, 0, std::as_bytes(std::span(values)));
    };
    put("/samples/offset", std::vector<std::uint64_t>{0, 2});
    put("/commit/unit_begin", std::vector<std::uint64_t>{0, 1});
    put("/tokens/id", std::vector<TokenId>{3, 4});
    file.freeze();
    const Rollouts all{roll_in, cuts, {{{7}, 1, 0.5f}, {{8, 9}, 0, 1.5f}}};
    for (const ColumnBytes& column : rollout_rows(all, shape)) file.write(column.path, 0, column.bytes);
    file.commit(file.unit(0));
    file.complete(world_);
    return path;
  }

  const Communicator world_;
  fs::path folder_;
};

TEST_F(RolloutsOnDisk, CutsKeepLessThanTheRollIn) {
  for (const std::vector<std::uint32_t>& cuts : {std::vector<std::uint32_t>{0, 2}, {1, 1}}) {
    RolloutsFile file(write({5, 6, 7}, cuts));
    EXPECT_EQ(file.rollouts(0).cut, cuts);
  }
  for (const std::uint32_t cut : {3u, 4u, 9u}) {
    RolloutsFile file(write({5, 6, 7}, {1, cut}));
    EXPECT_THAT([&] { file.rollouts(0); }, testing::ThrowsMessage<Error>(testing::HasSubstr(fmt::format(
                                               "sample 0: a cut keeps {} of the roll-in's 3 tokens", cut))));
  }
  RolloutsFile without_text(write({}, {0, 0}));
  EXPECT_THAT([&] { without_text.rollouts(0); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("a cut keeps 0 of the roll-in's 0 tokens")));
}

TEST(Cuts, AreUniformAndLeaveAToken) {
  const double most = 1 - 0x1p-53;
  EXPECT_EQ(cut_of(0, 1, 9), 1u);
  EXPECT_EQ(cut_of(0.5, 1, 9), 5u);
  EXPECT_EQ(cut_of(most, 1, 9), 8u);
  EXPECT_EQ(cut_of(0, 20, 9), 8u) << "a shorter roll-in is cut before its last token";
  EXPECT_EQ(cut_of(most, 0, 1), 0u);
  EXPECT_THAT([] { cut_of(0.5, 1, 0); }, testing::ThrowsMessage<Error>(testing::HasSubstr("has no token")));
}

}  // namespace rollouts_file_test
}  // namespace magister
