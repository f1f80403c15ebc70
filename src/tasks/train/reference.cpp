// A row counts when its crc32c agrees, so a kill at any moment, or a disk that wrote in another order, costs a unit's work and nothing else.
#include "tasks/train/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/io/crc32c.h"
#include "magister/parallel/gathered.h"
#include "magister/train/gradient_tree.h"

namespace magister {
namespace {

constexpr const char* kLogprob = "/reference/logprob";
constexpr const char* kCrc = "/reference/crc32c";
constexpr std::uint64_t kMostTokens = 1024;  // of a micro-batch, as BatchPlan has it

using Row = std::array<float, 2>;  // a number of f64 as the sum of two of f32

Row row_of(double value) {
  const auto high = static_cast<float>(value);
  return {high, static_cast<float>(value - high)};
}
double value_of(const Row& row) { return static_cast<double>(row[0]) + row[1]; }

std::uint32_t crc_of(std::uint64_t sample, const Row& row) {
  const std::uint32_t begun = crc32c(0, std::as_bytes(std::span(&sample, 1)));
  return crc32c(begun, std::as_bytes(std::span(row)));
}

// The values of a unit that is there; nullopt: it has to be computed.
std::optional<std::vector<double>> stored(const ResultsFile& file, const IndexRange& samples) {
  std::vector<Row> rows(samples.size());
  std::vector<std::uint32_t> crcs(samples.size());
  file.read(kLogprob, samples.begin, std::as_writable_bytes(std::span(rows)));
  file.read(kCrc, samples.begin, std::as_writable_bytes(std::span(crcs)));
  std::vector<double> values;
  for (std::uint64_t i = 0; i < samples.size(); ++i) {
    if (crcs[i] != crc_of(samples.begin + i, rows[i])) return std::nullopt;
    values.push_back(value_of(rows[i]));
  }
  return values;
}

void store(ResultsFile& file, const IndexRange& samples, std::vector<double>& values) {
  std::vector<Row> rows;
  std::vector<std::uint32_t> crcs;
  for (double& value : values) {
    rows.push_back(row_of(value));
    crcs.push_back(crc_of(samples.begin + crcs.size(), rows.back()));
    value = value_of(rows.back());  // what a restart would read
  }
  file.write(kLogprob, samples.begin, std::as_bytes(std::span(rows)));
  fail_point("train.reference.written");
  file.write(kCrc, samples.begin, std::as_bytes(std::span(crcs)));
}

// Pairs that take part, in their order, so many at once as have a good number of tokens.
std::vector<Samples> micro_batches(const TrainingData& data, const IndexRange& pairs) {
  std::vector<Samples> batches;
  std::uint64_t filled = 0;
  for (std::uint64_t pair = pairs.begin; pair < pairs.end; ++pair) {
    const std::uint64_t length = data.lengths()[pair];
    if (length == 0) continue;
    if (batches.empty() || filled + length > kMostTokens) {
      batches.emplace_back();
      filled = 0;
    }
    batches.back().push_back(pair);
    filled += length;
  }
  return batches;
}

std::vector<double> computed(const ReferenceWork& work, const IndexRange& samples) {
  MAGISTER_ASSERT(samples.begin % 2 == 0 && samples.end % 2 == 0);
  const std::vector<Samples> plan = micro_batches(work.data, {samples.begin / 2, samples.end / 2});
  std::vector<MicroBatch> batches;
  batches.reserve(plan.size());
  for (const Samples& pairs : plan) batches.push_back(work.data.micro_batch(pairs));
  const auto sums = work.trainer.sequence_logprobs(batches, work.heartbeat);
  std::vector<double> values(samples.size(), 0.0);
  for (std::size_t b = 0; b < plan.size(); ++b) {
    for (std::size_t i = 0; i < plan[b].size(); ++i) {
      for (const std::size_t side : {0, 1}) {
        const double value = sums[b][2 * i + side];
        MAGISTER_CHECK(std::isfinite(value), ExitCode::kData,
                       "record {}: the reference model's log-probability of an answer is {} (no loss can be compared "
                       "with it); look at this record and at the model's weights",
                       work.data.key(plan[b][i]), value);
        values[2 * plan[b][i] + side - samples.begin] = value;
      }
    }
  }
  return values;
}

}  // namespace

std::vector<ColumnSpec> reference_columns(std::uint64_t num_samples) {
  using Extent = ColumnSpec::Extent;
  return {{kLogprob, ColumnType::kF32, num_samples, 2,
           "log-probability of the answer's tokens by the weights that the training begins with, as the sum of two "
           "numbers",
           "nat", Extent::kSamples},
          {kCrc, ColumnType::kU32, num_samples, 0, "crc32c of the sample's number and its row of logprob", "",
           Extent::kSamples}};
}

std::optional<std::vector<double>> reference_logprobs(const ReferenceWork& work) {
  const std::uint64_t num_units = work.file.num_units();
  const int ranks = work.world.size();
  const IndexRange own = micro_batches_of(num_units, work.world.rank(), ranks);
  const std::uint64_t most = work.world.max(own.size());
  std::vector<double> values;
  for (std::uint64_t i = 0; i < most; ++i) {
    if (work.stop()) return std::nullopt;
    if (i >= own.size()) continue;
    work.heartbeat();
    const IndexRange samples = work.file.unit(own.begin + i).samples;
    std::optional<std::vector<double>> of_unit = stored(work.file, samples);
    if (!of_unit) {
      fail_point("train.reference.unit");
      of_unit = computed(work, samples);
      store(work.file, samples, *of_unit);
    }
    values.insert(values.end(), of_unit->begin(), of_unit->end());
  }
  return gathered(work.world, values);
}

}  // namespace magister
