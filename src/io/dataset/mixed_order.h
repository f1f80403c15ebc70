// Which source each record of a mixed data set comes from: the draws of Hugging Face `datasets`, interleave_datasets(probabilities, seed,
// stopping_strategy), so that a data set mixed here has the records of one mixed there, in their order. Local, the same on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/dataset/dataset.h"

namespace magister {

// numpy.random.default_rng(seed).random(): PCG64 begun through a SeedSequence.
// Source: numpy/random/bit_generator.pyx, O'Neill's "PCG: A Family of Simple Fast Space-Efficient ... Generators" (XSL-RR 128/64).
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
    std::uint64_t record = 0;  // of that source
  };

  // lengths: the records of each source, all above 0. poll throws when the job should stop; it is asked every 65,536 draws, of which a
  // second makes about 10^8. Throws Error(kConfig) where more than most_draws_ would be needed (a tiny weight beside many records).
  MixedOrder(const DatasetMix& mix, std::vector<std::uint64_t> lengths, const std::function<void()>& poll);

  std::uint64_t num_records() const { return num_records_; }
  // Visits the picks of records [range.begin, range.end) in order; stops when visit returns false.
  void for_each(IndexRange range, const std::function<bool(Pick)>& visit) const;
  // How many records of each source stand before record `at`, each time that a source began again counted in full.
  std::vector<std::uint64_t> taken_before(std::uint64_t at) const;

 private:
  // Where the draws stand before a record.
  struct Place {
    NumpyUniform uniform;
    std::vector<std::uint64_t> taken;  // of each source
  };
  Pick draw(Place& place, std::uint64_t& draws) const;
  bool at_end(const Place& place) const;
  Place place_before(std::uint64_t at) const;

  DatasetMix::Stop stop_;
  std::vector<double> up_to_;  // the cumulative probabilities
  std::vector<std::uint64_t> lengths_;
  std::uint64_t most_draws_ = 1ull << 26;  // and a hundred a record, at most 2^32: 40 s
  std::uint64_t num_records_ = 0;
  std::vector<Place> places_;  // before every kStride-th record
};

}  // namespace magister
