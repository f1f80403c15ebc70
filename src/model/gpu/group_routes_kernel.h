// Sorts the routes of a decoding pass by expert on the device, so that the products of experts find their rows without
// the host.
// Legend: R rows of the pass, X experts of which a router chooses k for each row, S shared experts, N = R k routes to
// chosen experts, I items, W words of a set of rows.
#pragma once

#include "model/gpu/expert_items.h"

namespace magister::gpu {

MAGISTER_DEVICE int bits_set(std::uint32_t word) {
#if defined(__CUDACC__)
  return __popc(word);
#else
  return std::popcount(word);
#endif
}

// Routes are sorted by expert and, for one expert, by row. A row has k different experts, so the rows of an expert are
// a set of R bits in shared memory, and the place of a route is a count of bits: nothing depends on the order of
// threads. Idle rows have no route to chosen experts: these places are -1. The routes of the S shared experts, which
// follow the chosen ones in a row of experts_RT, keep the order of the rows after all others: route s of row r has the
// place N + s R + r.
struct GroupRoutes {
  static constexpr const char* kName = "group_routes";
  static constexpr int kMaxThreads = 256;
  const std::int32_t* experts_RT;  // [R, k + S]
  const std::int32_t* visible_R;   // keys that a row sees; 0: an idle row
  std::int32_t* place_of_RT;       // [R, k + S]: the place of each route
  std::int32_t* route_N;           // [R (k + S)]: its inverse, indices into experts_RT; 0 where there is no route
  ExpertRows* items_I;
  int R, k, S, X;
  int item_rows;  // the most rows of an item
  int I;          // at least most_items()

  static int most_items(int R, int k, int X, int item_rows) { return most_expert_items(R * k, X, item_rows); }

  LaunchShape shape() const {
    const auto experts = static_cast<std::size_t>(X), words_and_first = static_cast<std::size_t>((R + 31) / 32 + 1);
    return {.blocks_x = 1, .threads = kMaxThreads, .shared_bytes = 8 * kWarp + 4 * (experts * words_and_first + 2)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* totals = reinterpret_cast<std::int64_t*>(t.shared());  // of warps
    int* const first_X = reinterpret_cast<int*>(totals + kWarp);
    int* const ends = first_X + X;  // routes and items in use
    int* const rows_XW = ends + 2;
    for (int i = t.thread(); i < X * words(); i += t.num_threads()) rows_XW[i] = 0;
    t.sync();
    for (int n = t.thread(); n < R * k; n += t.num_threads()) {
      const int r = n / k;
      if (visible_R[r] == 0) continue;
      const int x = experts_RT[r * (k + S) + n % k];
      t.add_shared(rows_XW + x * words() + r / 32, static_cast<int>(1u << (r % 32)));  // each bit once
    }
    t.sync();
    write_expert_items(t, X, item_rows, [&](int x) { return rows_of(rows_XW, x); }, totals, first_X, items_I, ends);
    t.sync();
    for (int i = ends[1] + t.thread(); i < I; i += t.num_threads()) items_I[i] = {0, 0, 0};
    for (int n = ends[0] + t.thread(); n < R * k; n += t.num_threads()) route_N[n] = 0;
    for (int n = t.thread(); n < R * k; n += t.num_threads()) write_place(n / k, n % k, rows_XW, first_X);
    for (int n = t.thread(); n < R * S; n += t.num_threads()) {
      const int route = n / S * (k + S) + k + n % S, place = R * k + n % S * R + n / S;
      place_of_RT[route] = place;
      route_N[place] = route;
    }
  }

 private:
  MAGISTER_DEVICE int words() const { return (R + 31) / 32; }

  MAGISTER_DEVICE int rows_of(const int* rows_XW, int x) const {
    int rows = 0;
    for (int w = 0; w < words(); ++w) rows += bits_set(static_cast<std::uint32_t>(rows_XW[x * words() + w]));
    return rows;
  }

  MAGISTER_DEVICE void write_place(int r, int i, const int* rows_XW, const int* first_X) const {
    const int route = r * (k + S) + i;
    if (visible_R[r] == 0) {
      place_of_RT[route] = -1;
      return;
    }
    const int x = experts_RT[route];
    const int* const rows_W = rows_XW + x * words();
    int place = first_X[x];
    for (int w = 0; w < r / 32; ++w) place += bits_set(static_cast<std::uint32_t>(rows_W[w]));
    place += bits_set(static_cast<std::uint32_t>(rows_W[r / 32]) & ((1u << (r % 32)) - 1));
    place_of_RT[route] = place;
    route_N[place] = route;
  }
};

}  // namespace magister::gpu
