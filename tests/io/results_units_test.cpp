// Units of an unfinished file on 1, 2 and 4 ranks when a run resumes: changed units are computed again, or refused if
// that is impossible.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "io/small_results_file.h"
#include "magister/core/sha256.h"
#include "magister/io/crc32c.h"
#include "magister/io/results/results_file.h"

namespace magister {
namespace results_units_test {

TEST_F(ResultsFileTest, ChecksumOfTheInputsCoversKeysAndTokens) {
  const ResultsFile file = create(spec_with_input_checksums());
  std::string bytes("ccc\0\0dddd\0", 10);
  const std::int32_t ids[] = {3, 4, 5, 6, 7, 8};
  bytes.append(reinterpret_cast<const char*>(ids), sizeof ids);
  std::uint32_t stored = 0;
  file.read("/commit/input_crc32c", 1, std::as_writable_bytes(std::span(&stored, 1)));
  EXPECT_EQ(stored, crc32c_plain(0, std::as_bytes(std::span(bytes))));
}

// Units without rows, units larger than a piece of 1 MiB, and a piece that ends within a unit.
TEST_F(ResultsFileTest, ChecksumsOfManyUnitsAreThoseOfEach) {
  const std::vector<std::uint64_t> lengths = {0, 1, 0, 300'000, 7, 7, 0, 262'144, 0, 0, 100'000, 1};
  const std::uint64_t n = lengths.size();
  std::vector<std::uint64_t> offset = {0}, begin = {0};
  for (std::uint64_t i = 0; i < n; ++i) {
    offset.push_back(offset.back() + lengths[i]);
    begin.push_back(i + 1);
  }
  ResultsSpec spec = spec_with_input_checksums();
  spec.num_units = n;
  for (ColumnSpec& column : spec.columns)
    column.num_rows = column.extent == Extent::kFixed ? n + 1 : column.extent == Extent::kSamples ? n : offset.back();
  spec.attributes = kIdentity;
  std::vector<std::int32_t> ids(offset.back());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 2654435761u >> 3);
  {
    ResultsFile file = ResultsFile::create(world_, path_, spec);
    if (is_root()) {
      put(file, "/samples/offset", 0, offset);
      put(file, "/commit/unit_begin", 0, begin);
      put(file, "/tokens/id", 0, ids);
    }
    file.freeze();
    for (std::uint64_t unit = 0; unit < n; ++unit) {
      std::uint32_t stored = 0;
      file.read("/commit/input_crc32c", unit, std::as_writable_bytes(std::span(&stored, 1)));
      const std::string key(5, '\0');
      EXPECT_EQ(stored, crc32c_plain(crc32c_plain(0, std::as_bytes(std::span(key))),
                                     std::as_bytes(std::span(ids).subspan(offset[unit], lengths[unit]))))
          << unit;
    }
    EXPECT_EQ(file.most_rows_of_a_unit(), 300'000u);
    world_.barrier();
    fill_pending(file);
  }
  EXPECT_TRUE(ResultsFile::resume(world_, path_, kIdentity).pending_units().empty());
}

TEST_F(ResultsFileTest, CommittedUnitsThatChangedAreMadeAgain) {
  const ResultsSpec spec = spec_with_input_checksums();
  {
    ResultsFile file = create(spec);
    fill_pending(file);
    file.complete(world_);
  }
  const std::string whole = is_root() ? sha256_hex(bytes_of(path_)) : "";
  if (is_root()) fs::remove(path_);
  world_.barrier();
  // A row, a checksum, a flag.
  for (const char* changed : {"/values/byte", "/commit/crc32c", "/commit/done"}) {
    {
      ResultsFile file = create(spec);
      if (is_root()) {
        for (const std::uint64_t unit : {0, 2}) {
          fill(file, file.unit(unit));
          file.commit(file.unit(unit));
        }
        const std::string path = changed;
        if (path == "/values/byte") put<std::uint8_t>(file, changed, 9, {208});
        if (path == "/commit/crc32c") put<std::uint32_t>(file, changed, 2, {0xdead});
        if (path == "/commit/done") put<std::uint8_t>(file, changed, 1, {1});
      }
      world_.barrier();
    }
    {
      ResultsFile file = ResultsFile::resume(world_, path_, kIdentity);
      const bool flag = std::string(changed) == "/commit/done";
      EXPECT_EQ(list_of(file.pending_units()),
                (flag ? std::vector<std::uint64_t>{1} : std::vector<std::uint64_t>{1, 2}))
          << changed;
      if (is_root()) {
        EXPECT_EQ(ResultsFile::unit_counts(path_ + ".partial").done, flag ? 2u : 1u) << changed;
      }
      world_.barrier();  // the counts were read before any rank commits again
      fill_pending(file);
      file.complete(world_);
    }
    if (is_root()) {
      EXPECT_EQ(sha256_hex(bytes_of(path_)), whole) << changed;
      fs::remove(path_);
    }
    world_.barrier();
  }
}

TEST_F(ResultsFileTest, AStopWhileUnitsAreReadEndsAllRanks) {
  {
    const ResultsFile file = create(spec_with_input_checksums());
  }
  try {
    ResultsFile::resume(world_, path_, kIdentity, {}, [&] { return world_.rank() + 1 == world_.size(); });
    ADD_FAILURE() << "went on";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ExitCode::kStopped)) << error.what();
  }
}

TEST_F(ResultsFileTest, ChangedInputsAreRefusedByTheirUnit) {
  const auto with = [&](const ResultsSpec& spec, std::uint64_t row, const std::function<void()>& expectation) {
    {
      ResultsFile file = create(spec);
      if (is_root()) {
        fill(file, file.unit(2));
        file.commit(file.unit(2));
        put<std::int32_t>(file, "/tokens/id", row, {100});
      }
      world_.barrier();
    }
    expectation();
    if (is_root()) fs::remove(path_ + ".partial");
    world_.barrier();
  };
  const ResultsSpec checked = spec_with_input_checksums(), of_an_older_version = small_spec();
  with(checked, 2, [&] { expect_resume_refused("what unit 0 is computed from"); });
  with(checked, 5, [&] { expect_resume_refused("what unit 1 is computed from (keys, places, tokens) has crc32c"); });
  // It cannot be computed again.
  with(checked, 9, [&] { expect_resume_refused("what unit 2 is computed from"); });
  with(checked, 5, [&] {  // whichever rank reads it: all leave
    EXPECT_THROW(ResultsFile::resume(world_, path_, kIdentity), Error);
  });
  with(of_an_older_version, 5, [&] {
    EXPECT_EQ(list_of(ResultsFile::resume(world_, path_, kIdentity).pending_units()),
              (std::vector<std::uint64_t>{0, 1}));
    world_.barrier();
  });
  with(of_an_older_version, 9, [&] { expect_resume_refused("whether its tokens changed is not known"); });
}

}  // namespace results_units_test
}  // namespace magister
