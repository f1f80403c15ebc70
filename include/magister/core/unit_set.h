// UnitSet: the units of 0 .. n - 1 that are still to do. Its memory does not grow with units that are done in order. (A
// unit of a generate task is one record, so a list of numbers would need 800 MB per rank at 10^8 records.) A block of
// 4096 units is full, empty (16 bytes each: 390 kB at 10^8), or mixed: then it has a bitmap (512 bytes more). After a
// stop only the blocks at which ranks were working are mixed. The worst case (a static schedule of unequal groups)
// takes 1.03 bits per unit.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "magister/core/types.h"

namespace magister {

class UnitSet {
 public:
  UnitSet() = default;
  static UnitSet all(std::uint64_t num_units);
  // read_flags(first, flags) fills flags[i] for unit first + i; 0: the unit is in the set. It is called in order, for
  // 2^20 units at a time.
  UnitSet(std::uint64_t num_units,
          const std::function<void(std::uint64_t first, std::span<std::uint8_t> flags)>& read_flags);
  // Serialised form for messages between ranks.
  std::string to_bytes() const;
  static UnitSet from_bytes(std::string_view bytes);

  std::uint64_t num_units() const { return num_units_; }
  std::uint64_t size() const { return blocks_.empty() ? 0 : blocks_.back().before + blocks_.back().count; }
  bool empty() const { return size() == 0; }
  // The i-th member in ascending order, i < size().
  std::uint64_t operator[](std::uint64_t i) const;
  // The lowest member that is not below `unit`, or num_units().
  std::uint64_t next(std::uint64_t unit) const { return search(unit, false); }
  // Calls visit(range) for every run of consecutive members, in order.
  template <typename Visit>
  void for_each_run(const Visit& visit) const {
    for (std::uint64_t begin = next(0); begin < num_units_;) {
      const std::uint64_t end = search(begin, true);
      visit(IndexRange{begin, end});
      begin = next(end);
    }
  }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::uint64_t;
    using difference_type = std::int64_t;
    using pointer = const std::uint64_t*;
    using reference = std::uint64_t;
    Iterator(const UnitSet& set, std::uint64_t unit) : set_(&set), unit_(unit) {}
    std::uint64_t operator*() const { return unit_; }
    Iterator& operator++() {
      unit_ = set_->next(unit_ + 1);
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(const Iterator& other) const { return unit_ == other.unit_; }

   private:
    const UnitSet* set_;
    std::uint64_t unit_;
  };
  Iterator begin() const { return {*this, next(0)}; }
  Iterator end() const { return {*this, num_units_}; }

 private:
  static constexpr std::uint64_t kBlock = 4096;
  struct Block {
    std::uint64_t before = 0;    // members in the blocks before
    std::uint32_t count = 0;     // members in this block
    std::uint32_t words_at = 0;  // index of its 64 bitmap words, in units of 64 words, if the block is mixed
  };
  std::uint64_t size_of_block(std::uint64_t block) const;
  bool is_mixed(std::uint64_t block) const;
  void add_block(std::span<const std::uint8_t> flags);
  std::uint64_t search(std::uint64_t unit, bool absent) const;

  std::uint64_t num_units_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::uint64_t> words_;
};

}  // namespace magister
