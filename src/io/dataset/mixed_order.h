// The source of each record of a mixed data set. The draws are those of Hugging Face `datasets`,
// interleave_datasets(probabilities, seed, stopping_strategy), so that both programs give the same records in the same
// order. Local, equal on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/dataset/dataset.h"

namespace magister {

// numpy.random.default_rng(seed).random(): PCG64 seeded through a SeedSequence.
// Source: numpy/random/bit_generator.pyx; O'Neill's "PCG: A Family of Simple Fast Space-Efficient ... Generators"
// (XSL-RR 128/64).
class NumpyUniform {
 public:
  explicit NumpyUniform(std::uint64_t seed);
  double next();  // [0, 1), 53 bits

 private:
  void step();
  unsigned __int128 state_ = 0, increment_ = 0;
};

class MixedOrder {
 public:
  struct Pick {
    std::size_t source = 0;
    std::uint64_t record = 0;  // index in that source
  };

  // lengths: the records of each source, all above 0. poll throws if the job should stop; it is called every 65,536
  // draws, and a second makes about 10^8 draws. Throws Error(kConfig) if more than most_draws_ would be needed (a tiny
  // weight with many records).
  MixedOrder(const DatasetMix& mix, std::vector<std::uint64_t> lengths, const std::function<void()>& poll);

  std::uint64_t num_records() const { return num_records_; }
  // Visits the picks of records [range.begin, range.end) in order; stops if visit returns false.
  void for_each(IndexRange range, const std::function<bool(Pick)>& visit) const;
  // The number of records taken from each source before record `at`; records taken again after a source began again
  // count, too.
  std::vector<std::uint64_t> taken_before(std::uint64_t at) const;

 private:
  // The state of the draws before a record.
  struct Place {
    NumpyUniform uniform;
    std::vector<std::uint64_t> taken;  // records taken from each source
  };
  Pick draw(Place& place, std::uint64_t& draws) const;
  bool at_end(const Place& place) const;
  Place place_before(std::uint64_t at) const;

  DatasetMix::Stop stop_;
  std::vector<double> up_to_;  // cumulative probabilities
  std::vector<std::uint64_t> lengths_;
  std::uint64_t most_draws_ = 1ull << 26;  // plus a hundred per record, at most 2^32, which take 40 s
  std::uint64_t num_records_ = 0;
  std::vector<Place> places_;  // state before every kStride-th record
};

}  // namespace magister
