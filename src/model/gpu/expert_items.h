// The work lists of products that multiply all experts of a layer in one launch: which rows of the sorted routes belong
// to which expert. Passes of decoding rows and of prompts share them.
// Legend: X experts, I items.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

// The work of a block of products: rows [first, first + rows) of the sorted routes, all of one expert. rows is 0 where
// there is nothing to do.
struct ExpertRows {
  std::int32_t expert, first, rows;
};

// The most items of at most `item_rows` rows that `routes` routes to X experts can need.
constexpr int most_expert_items(int routes, int X, int item_rows) {
  const int experts = routes < X ? routes : X;
  return experts + (routes - experts) / item_rows;
}

// Writes the items of all experts, in their order, and each expert's first row; called by one block. rows_of(x): the
// rows of expert x. scratch: shared memory for 32 numbers. ends: the routes and items in use.
template <typename Thread, typename RowsOf>
MAGISTER_DEVICE void write_expert_items(Thread& t, int X, int item_rows, const RowsOf& rows_of, std::int64_t* scratch,
                                        int* first_X, ExpertRows* items_I, int* ends) {
  // Each thread takes some neighbouring experts. A 64-bit sum counts their items (upper half) and routes.
  const int each = (X + t.num_threads() - 1) / t.num_threads(), begin = t.thread() * each,
            end = begin + each < X ? begin + each : X;
  std::int64_t own = 0;
  for (int x = begin; x < end; ++x) {
    const int rows = rows_of(x);
    own += (static_cast<std::int64_t>((rows + item_rows - 1) / item_rows) << 32) + rows;
  }
  std::int64_t sum = own;  // of this thread and of those before it in the warp
  for (int step = 1; step < kWarp; step *= 2) {
    const std::int64_t before = t.shuffle(sum, t.lane() >= step ? t.lane() - step : t.lane());
    if (t.lane() >= step) sum += before;
  }
  if (t.lane() == kWarp - 1) scratch[t.warp()] = sum;
  t.sync();
  for (int warp = 0; warp < t.warp(); ++warp) sum += scratch[warp];
  const std::int64_t before = sum - own;
  int first = static_cast<int>(before & 0xffffffff), item = static_cast<int>(before >> 32);
  for (int x = begin; x < end; ++x) {
    const int rows = rows_of(x);
    first_X[x] = first;
    for (int done = 0; done < rows; done += item_rows)
      items_I[item++] = {x, first + done, rows - done < item_rows ? rows - done : item_rows};
    first += rows;
  }
  if (t.thread() == t.num_threads() - 1) {
    ends[0] = static_cast<int>(sum & 0xffffffff);
    ends[1] = static_cast<int>(sum >> 32);
  }
}

}  // namespace magister::gpu
