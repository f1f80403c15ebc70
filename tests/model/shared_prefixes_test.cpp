// Runs of neighbours against every way to divide small lists, and the packed rows against the sequences they come from.
#include "magister/model/shared_prefixes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "magister/model/transformer.h"
#include "model/cpu/layer_buffers.h"

namespace magister {
namespace shared_prefixes_test {

using Sequences = std::vector<std::vector<TokenId>>;

std::vector<std::int64_t> last_rows(const Sequences& sequences) {
  std::vector<std::int64_t> rows;
  for (const auto& sequence : sequences) rows.push_back(static_cast<std::int64_t>(sequence.size()) - 1);
  return rows;
}

// The most rows that a division of sequences [begin, end) into runs saves, tried one by one.
std::int64_t most_saved(const Sequences& sequences, const std::vector<std::int64_t>& wanted, std::size_t begin) {
  if (begin == sequences.size()) return 0;
  std::int64_t best = 0;
  for (std::size_t end = begin + 1; end <= sequences.size(); ++end) {
    std::size_t shared = end - begin > 1 ? sequences[begin].size() : 0;
    for (std::size_t s = begin + 1; s < end; ++s) {
      std::size_t same = 0;
      while (same < std::min(sequences[s].size(), sequences[begin].size()) &&
             sequences[s][same] == sequences[begin][same])
        ++same;
      shared = std::min({shared, same, static_cast<std::size_t>(wanted[s])});
    }
    if (shared < static_cast<std::size_t>(kLeastShared)) shared = 0;
    best = std::max(best, static_cast<std::int64_t>((end - begin - 1) * shared) + most_saved(sequences, wanted, end));
  }
  return best;
}

Sequences drawn(std::mt19937& source) {
  const auto below = [&](int count) { return static_cast<int>(source() % static_cast<unsigned>(count)); };
  Sequences sequences;
  std::vector<TokenId> header(static_cast<std::size_t>(below(120)), 7), prompt;
  for (int s = 1 + below(8); s > 0; --s) {
    if (prompt.empty() || below(3) == 0) {
      prompt = header;
      for (int i = below(150); i > 0; --i) prompt.push_back(below(4));
    }
    std::vector<TokenId> ids = prompt;
    for (int i = below(20); i > 0; --i) ids.push_back(below(4));
    if (ids.empty()) ids.push_back(1);
    sequences.push_back(std::move(ids));
  }
  return sequences;
}

// Every token of every sequence is in the slot that its table gives, and no other slot holds anything.
void expect_pages_hold(const PackedBatch& batch, const Sequences& sequences) {
  const BatchPages pages(batch);
  std::vector<std::pair<TokenId, std::int64_t>> slots(static_cast<std::size_t>(pages.num_pages() * KvPages::kSlots),
                                                      {-1, -1});
  const auto slot_of = [&](std::size_t s, std::int64_t j) {
    const BlockTable& table = pages.sequences[s];
    return static_cast<std::size_t>(table.pages[(table.offset + j) / KvPages::kSlots] * KvPages::kSlots +
                                    (table.offset + j) % KvPages::kSlots);
  };
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (auto j = batch.past(static_cast<std::int64_t>(s)); j < static_cast<std::int64_t>(sequences[s].size()); ++j) {
      auto& slot = slots.at(slot_of(s, j));
      ASSERT_EQ(slot.first, -1) << "two tokens of one slot";
      slot = {sequences[s][static_cast<std::size_t>(j)], j};
    }
  }
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (std::int64_t j = 0; j < static_cast<std::int64_t>(sequences[s].size()); ++j)
      ASSERT_EQ(slots.at(slot_of(s, j)), std::pair(sequences[s][static_cast<std::size_t>(j)], j));
  }
}

TEST(SharedPrefixes, SaveTheMostRowsAndNothingIsLost) {
  std::mt19937 source(1);
  std::int64_t shared_batches = 0;
  for (int round = 0; round < 2000; ++round) {
    const Sequences sequences = drawn(source);
    const std::vector<std::int64_t> wanted = last_rows(sequences);
    const PackedBatch batch = pack_sharing(sequences, wanted);
    std::int64_t all = 0;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const auto at = static_cast<std::int64_t>(s);
      const auto length = static_cast<std::int64_t>(sequences[s].size());
      all += length;
      ASSERT_LE(batch.past(at), wanted[s]);
      ASSERT_EQ(batch.cu_seqlens[s + 1] - batch.cu_seqlens[s], length - batch.past(at));
    }
    ASSERT_EQ(all - batch.num_tokens(), most_saved(sequences, wanted, 0));
    shared_batches += batch.num_tokens() < all;
    expect_pages_hold(batch, sequences);
    // The remaining tokens never take more pages than whole sequences, each starting at a page's beginning.
    std::int64_t pages = 1;
    for (const auto& sequence : sequences) pages += static_cast<std::int64_t>(sequence.size()) / KvPages::kSlots + 1;
    ASSERT_LE(BatchPages(batch).num_pages(), pages + 1);
  }
  EXPECT_GT(shared_batches, 500);
}

TEST(SharedPrefixes, WantedRowsAreNeverLeftOut) {
  std::vector<TokenId> text(100, 3);
  const PackedBatch same = pack_sharing({text, text, text}, {99, 99, 60});
  EXPECT_EQ(same.past_S, (std::vector<std::int64_t>{0, 60, 60}));
  EXPECT_EQ(same.prefix_of_S, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_TRUE(pack_sharing({text, text}, {99, 47}).past_S.empty());
  EXPECT_EQ(pack_sharing({text, text}, {0, 48}).past_S, (std::vector<std::int64_t>{0, 48}));
  EXPECT_TRUE(pack_sharing({}, {}).cu_seqlens == std::vector<std::int64_t>{0});
}

}  // namespace shared_prefixes_test
}  // namespace magister
