// Walks the keys of a sequence through its pages.
#pragma once

#include <algorithm>
#include <cstdint>

#include "magister/model/kv_pages.h"

namespace magister {

// Calls body(page, first slot in it, first key, number of keys) for the parts of keys [begin, end) that are in one page
// or, with `runs`, in pages that follow each other in memory.
template <typename Body>
void for_pages(const BlockTable& sequence, std::int64_t begin, std::int64_t end, bool runs, const Body& body) {
  while (begin < end) {
    const std::int64_t slot = sequence.offset + begin, page = slot / KvPages::kSlots, in_page = slot % KvPages::kSlots;
    std::int64_t pages = 1;
    const auto covered = [&] { return pages * KvPages::kSlots - in_page; };
    while (runs && covered() < end - begin && sequence.pages[page + pages] == sequence.pages[page] + pages) ++pages;
    const std::int64_t count = std::min(end - begin, covered());
    body(sequence.pages[page], in_page, begin, count);
    begin += count;
  }
}

}  // namespace magister
