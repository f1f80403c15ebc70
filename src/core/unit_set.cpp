// Finds members of mixed blocks by popcount and by counting trailing zeros.
#include "magister/core/unit_set.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "magister/core/error.h"

namespace magister {
namespace {
constexpr std::uint64_t kWords = 4096 / 64;
constexpr std::uint64_t kFlagsAtOnce = 1 << 20;
}  // namespace

UnitSet UnitSet::all(std::uint64_t num_units) {
  UnitSet set;
  set.num_units_ = num_units;
  for (std::uint64_t begin = 0; begin < num_units; begin += kBlock) {
    set.blocks_.push_back({begin, static_cast<std::uint32_t>(std::min(kBlock, num_units - begin)), 0});
  }
  return set;
}

UnitSet::UnitSet(std::uint64_t num_units, const std::function<void(std::uint64_t, std::span<std::uint8_t>)>& read_flags)
    : num_units_(num_units) {
  std::vector<std::uint8_t> flags;
  for (std::uint64_t first = 0; first < num_units; first += kFlagsAtOnce) {
    flags.resize(std::min(kFlagsAtOnce, num_units - first));
    read_flags(first, flags);
    for (std::size_t at = 0; at < flags.size(); at += kBlock)
      add_block(std::span(flags).subspan(at, std::min<std::size_t>(kBlock, flags.size() - at)));
  }
}

void UnitSet::add_block(std::span<const std::uint8_t> flags) {
  Block block{size(), static_cast<std::uint32_t>(std::count(flags.begin(), flags.end(), 0)), 0};
  if (block.count != 0 && block.count != flags.size()) {
    block.words_at = static_cast<std::uint32_t>(words_.size() / kWords);
    words_.resize(words_.size() + kWords, 0);
    std::uint64_t* words = words_.data() + words_.size() - kWords;
    for (std::size_t i = 0; i < flags.size(); ++i) words[i / 64] |= std::uint64_t{flags[i] == 0} << i % 64;
  }
  blocks_.push_back(block);
}

std::uint64_t UnitSet::size_of_block(std::uint64_t block) const {
  return std::min(kBlock, num_units_ - block * kBlock);
}

bool UnitSet::is_mixed(std::uint64_t block) const {
  const std::uint64_t count = blocks_[block].count;
  return count != 0 && count != size_of_block(block);
}

std::uint64_t UnitSet::operator[](std::uint64_t i) const {
  MAGISTER_CHECK(i < size(), ExitCode::kInternal, "unit number {} of {} is asked for (there is none); report this", i,
                 size());
  const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), i,
                                      [](std::uint64_t at, const Block& block) { return at < block.before; });
  const auto index = static_cast<std::uint64_t>(after - blocks_.begin()) - 1;
  std::uint64_t left = i - blocks_[index].before;
  if (!is_mixed(index)) return index * kBlock + left;
  const std::uint64_t* words = words_.data() + blocks_[index].words_at * kWords;
  for (std::uint64_t w = 0;; ++w) {
    std::uint64_t word = words[w];
    const auto count = static_cast<std::uint64_t>(std::popcount(word));
    if (left >= count) {
      left -= count;
      continue;
    }
    for (; left > 0; --left) word &= word - 1;
    return index * kBlock + w * 64 + static_cast<std::uint64_t>(std::countr_zero(word));
  }
}

// The lowest member from `unit` on (with `absent` the lowest non-member); num_units() if there is none.
std::uint64_t UnitSet::search(std::uint64_t unit, bool absent) const {
  while (unit < num_units_) {
    const std::uint64_t block = unit / kBlock, begin = block * kBlock, end = begin + size_of_block(block);
    if (!is_mixed(block)) {
      if ((blocks_[block].count == 0) == absent) return unit;
      unit = end;
      continue;
    }
    const std::uint64_t* words = words_.data() + blocks_[block].words_at * kWords;
    const std::uint64_t in_block = unit - begin;
    const std::uint64_t word = (absent ? ~words[in_block / 64] : words[in_block / 64]) >> in_block % 64;
    const std::uint64_t step = word != 0 ? static_cast<std::uint64_t>(std::countr_zero(word)) : 64 - in_block % 64;
    unit = std::min(unit + step, end);
    if (word != 0 && unit < end) return unit;
  }
  return num_units_;
}

std::string UnitSet::to_bytes() const {
  std::string bytes;
  const std::uint64_t sizes[2] = {num_units_, blocks_.size()};
  bytes.append(reinterpret_cast<const char*>(sizes), sizeof sizes);
  bytes.append(reinterpret_cast<const char*>(blocks_.data()), blocks_.size() * sizeof(Block));
  bytes.append(reinterpret_cast<const char*>(words_.data()), words_.size() * sizeof(std::uint64_t));
  return bytes;
}

UnitSet UnitSet::from_bytes(std::string_view bytes) {
  std::uint64_t sizes[2];
  MAGISTER_ASSERT(bytes.size() >= sizeof sizes);
  std::memcpy(sizes, bytes.data(), sizeof sizes);
  bytes.remove_prefix(sizeof sizes);
  UnitSet set;
  set.num_units_ = sizes[0];
  set.blocks_.resize(sizes[1]);
  MAGISTER_ASSERT(bytes.size() >= sizes[1] * sizeof(Block));
  if (!set.blocks_.empty()) std::memcpy(set.blocks_.data(), bytes.data(), sizes[1] * sizeof(Block));
  bytes.remove_prefix(sizes[1] * sizeof(Block));
  set.words_.resize(bytes.size() / sizeof(std::uint64_t));
  if (!set.words_.empty()) std::memcpy(set.words_.data(), bytes.data(), bytes.size());
  return set;
}

}  // namespace magister
