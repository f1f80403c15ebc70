// Shared by the tests of ResultsFile: a file of 6 samples in 3 units, created, filled and read on every rank.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/io/results/results_file.h"

namespace magister {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Extent = ColumnSpec::Extent;

inline const Attributes kIdentity = {{"config_sha256", "c0ffee"}, {"slice_end", std::uint64_t{6}}};

// 6 samples of 3, 0, 2, 4, 0, 1 tokens in 3 units: rows 0 to 2, 3 to 8 and 9.
inline ResultsSpec small_spec() {
  ResultsSpec spec;
  spec.columns = {{"/samples/key", ColumnType::kUtf8, 6, 5, "key", "", Extent::kSamples},
                  {"/samples/offset", ColumnType::kU64, 7, 0, "offsets", "", Extent::kFixed},
                  {"/tokens/id", ColumnType::kI32, 10, 0, "ids", "", Extent::kRows},
                  {"/values/wide", ColumnType::kF32, 10, 3, "three a row", "nat", Extent::kRows},
                  {"/values/byte", ColumnType::kU8, 10, 0, "one a row", "", Extent::kRows}};
  spec.num_units = 3;
  spec.attributes = kIdentity;
  spec.attributes.emplace_back("num_samples", std::uint64_t{6});
  spec.attributes.emplace_back("num_tokens", std::uint64_t{10});
  return spec;
}

inline ResultsSpec spec_with_input_checksums() {
  ResultsSpec spec = small_spec();
  spec.checks_inputs = true;
  return spec;
}

template <typename T>
void put(ResultsFile& file, const char* column, std::uint64_t row, const std::vector<T>& values) {
  file.write(column, row, std::as_bytes(std::span(values)));
}

inline std::vector<std::uint64_t> list_of(const UnitSet& units) { return {units.begin(), units.end()}; }

class ResultsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("magister_results_{}", ::getpid());
    std::string name = folder_.string();
    world_.broadcast(name, 0);
    folder_ = name;
    path_ = (folder_ / "x.h5").string();
    if (is_root()) fs::create_directories(folder_);
    world_.barrier();
  }
  void TearDown() override {
    world_.barrier();
    if (is_root()) fs::remove_all(folder_);
    world_.barrier();
  }
  bool is_root() const { return world_.rank() == 0; }

  ResultsFile create(const ResultsSpec& spec = small_spec()) {
    ResultsFile file = ResultsFile::create(world_, path_, spec);
    if (is_root()) {
      put<std::uint64_t>(file, "/samples/offset", 0, {0, 3, 3, 5, 9, 9, 10});
      put<std::uint64_t>(file, "/commit/unit_begin", 0, {0, 2, 4, 6});
      put<std::int32_t>(file, "/tokens/id", 0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
      const std::string keys("a\0\0\0\0bb\0\0\0ccc\0\0dddd\0eeeeef\0\0\0\0", 30);
      file.write("/samples/key", 0, std::as_bytes(std::span(keys)));
    }
    file.freeze();
    return file;
  }
  static void fill(ResultsFile& file, const Unit& unit) {
    std::vector<float> wide;
    std::vector<std::uint8_t> byte;
    for (std::uint64_t row = unit.rows.begin; row < unit.rows.end; ++row) {
      for (int i = 0; i < 3; ++i) wide.push_back(static_cast<float>(row) + 0.25f * static_cast<float>(i));
      byte.push_back(static_cast<std::uint8_t>(200 + row));
    }
    put(file, "/values/wide", unit.rows.begin, wide);
    put(file, "/values/byte", unit.rows.begin, byte);
  }
  void fill_pending(ResultsFile& file) const {
    std::uint64_t turn = 0;
    for (const std::uint64_t index : file.pending_units()) {
      if (turn++ % static_cast<std::uint64_t>(world_.size()) != static_cast<std::uint64_t>(world_.rank())) continue;
      fill(file, file.unit(index));
      file.commit(file.unit(index));
    }
    world_.barrier();
  }
  std::string bytes_of(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // On rank 0, where the work of checking is done; a Communicator alone keeps the others out of it.
  void expect_refusal(ExitCode code, const std::string& words,
                      const std::function<void(const Communicator&)>& call) const {
    if (is_root()) {
      const Communicator alone;
      try {
        call(alone);
        ADD_FAILURE() << "no refusal: " << words;
      } catch (const Error& error) {
        EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
        EXPECT_THAT(error.what(), HasSubstr(words));
      }
    }
    world_.barrier();
  }
  void expect_resume_refused(const std::string& words, ExitCode code = ExitCode::kData) const {
    const std::string before = is_root() ? bytes_of(path_ + ".partial") : "";
    expect_refusal(code, words, [&](const Communicator& alone) { ResultsFile::resume(alone, path_, kIdentity); });
    if (is_root()) {
      EXPECT_EQ(bytes_of(path_ + ".partial"), before) << "it is never overwritten";
    }
  }

  const Communicator world_ = Communicator::world();
  fs::path folder_;
  std::string path_;
};

}  // namespace magister
