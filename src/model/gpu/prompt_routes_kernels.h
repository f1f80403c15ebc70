// Sorts the routes of a pass of prompts by expert on the device. Such passes have thousands of tokens, so three kernels
// share the work: blocks count the routes of 256 tokens to each expert, one block adds the counts and writes the items
// of all experts, and blocks then write the place of each route.
// Legend: T packed tokens, X experts of which a router chooses k for each token, S shared experts, N = T k routes to
// chosen experts, B blocks of tokens, I items, W words of a set of tokens.
#pragma once

#include "model/gpu/group_routes_kernel.h"

namespace magister::gpu {

// Routes are sorted by expert and, for one expert, by token, as in GroupRoutes: nothing depends on the order of
// threads. The routes of shared experts keep the order of the tokens after all others: route s of token t has the place
// N + s T + t.
struct PromptRoutes {
  static constexpr int kTokens = 256, kWords = kTokens / 32;  // of a block
  const std::int32_t* experts_TR;                             // [T, k + S]
  int T, k, S, X;

  static constexpr int blocks_of(int tokens) { return (tokens + kTokens - 1) / kTokens; }
  MAGISTER_DEVICE int tokens(int block) const {
    const int left = T - block * kTokens;
    return left < kTokens ? left : kTokens;
  }
  MAGISTER_DEVICE int expert(int token, int i) const { return experts_TR[token * (k + S) + i]; }
};

struct CountRoutes {
  static constexpr const char* kName = "count_routes";
  static constexpr int kMaxThreads = 256;
  PromptRoutes routes;
  std::int32_t* counts_BX;

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>(PromptRoutes::blocks_of(routes.T)),
            .threads = kMaxThreads,
            .shared_bytes = 4 * static_cast<std::size_t>(routes.X)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    int* const counts_X = reinterpret_cast<int*>(t.shared());
    const int block = static_cast<int>(t.block_x()), first = block * PromptRoutes::kTokens;
    for (int x = t.thread(); x < routes.X; x += t.num_threads()) counts_X[x] = 0;
    t.sync();
    for (int n = t.thread(); n < routes.tokens(block) * routes.k; n += t.num_threads())
      t.add_shared(counts_X + routes.expert(first + n / routes.k, n % routes.k), 1);
    t.sync();
    for (int x = t.thread(); x < routes.X; x += t.num_threads())
      counts_BX[static_cast<std::int64_t>(block) * routes.X + x] = counts_X[x];
  }
};

// Replaces each count by the routes to the same expert in the blocks before it. One block.
struct PlaceExperts {
  static constexpr const char* kName = "place_experts";
  static constexpr int kMaxThreads = 512;
  static constexpr int kAtOnce = 8;  // loads that each thread has in flight
  std::int32_t* counts_BX;
  std::int32_t* first_X;  // the first row of each expert
  ExpertRows* items_I;
  int B, X;
  int item_rows;  // the most rows of an item
  int I;          // at least most_expert_items()

  LaunchShape shape() const {
    return {.blocks_x = 1, .threads = kMaxThreads, .shared_bytes = 8 * kWarp + 4 * (static_cast<std::size_t>(X) + 2)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* const scratch = reinterpret_cast<std::int64_t*>(t.shared());
    int* const rows_X = reinterpret_cast<int*>(scratch + kWarp);
    int* const ends = rows_X + X;
    for (int x = t.thread(); x < X; x += t.num_threads()) {
      int before = 0;
      for (int block = 0; block < B; block += kAtOnce) {
        int counts[kAtOnce];
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) counts[i] = block + i < B ? counts_BX[place(block + i, x)] : 0;
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          if (block + i < B) counts_BX[place(block + i, x)] = before;
          before += counts[i];
        }
      }
      rows_X[x] = before;
    }
    t.sync();
    write_expert_items(t, X, item_rows, [&](int x) { return rows_X[x]; }, scratch, first_X, items_I, ends);
    t.sync();
    for (int i = ends[1] + t.thread(); i < I; i += t.num_threads()) items_I[i] = {0, 0, 0};
  }

 private:
  MAGISTER_DEVICE std::int64_t place(int block, int x) const { return static_cast<std::int64_t>(block) * X + x; }
};

struct PlaceRoutes {
  static constexpr const char* kName = "place_routes";
  static constexpr int kMaxThreads = 256;
  PromptRoutes routes;
  const std::int32_t* before_BX;  // of PlaceExperts, as first_X
  const std::int32_t* first_X;
  std::int32_t* place_of_TR;  // [T, k + S]: the place of each route
  std::int32_t* route_N;      // [T (k + S)]: its inverse, indices into experts_TR

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>(PromptRoutes::blocks_of(routes.T)),
            .threads = kMaxThreads,
            .shared_bytes = 4 * static_cast<std::size_t>(routes.X) * PromptRoutes::kWords};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    constexpr int W = PromptRoutes::kWords;
    int* const tokens_XW = reinterpret_cast<int*>(t.shared());
    const int k = routes.k, S = routes.S, R = k + S, block = static_cast<int>(t.block_x()),
              first = block * PromptRoutes::kTokens, count = routes.tokens(block);
    for (int i = t.thread(); i < routes.X * W; i += t.num_threads()) tokens_XW[i] = 0;
    t.sync();
    for (int n = t.thread(); n < count * k; n += t.num_threads()) {
      const int own = n / k;
      t.add_shared(tokens_XW + routes.expert(first + own, n % k) * W + own / 32,
                   static_cast<int>(1u << (own % 32)));  // each bit once
    }
    t.sync();
    for (int n = t.thread(); n < count * k; n += t.num_threads()) {
      const int own = n / k, x = routes.expert(first + own, n % k);
      int place = first_X[x] + before_BX[static_cast<std::int64_t>(block) * routes.X + x];
      for (int w = 0; w < own / 32; ++w) place += bits_set(static_cast<std::uint32_t>(tokens_XW[x * W + w]));
      place += bits_set(static_cast<std::uint32_t>(tokens_XW[x * W + own / 32]) & ((1u << (own % 32)) - 1));
      write(place, (first + own) * R + n % k);
    }
    for (int n = t.thread(); n < count * S; n += t.num_threads()) {
      const int token = first + n / S;
      write(routes.T * k + n % S * routes.T + token, token * R + k + n % S);
    }
  }

 private:
  MAGISTER_DEVICE void write(int place, int route) const {
    place_of_TR[route] = place;
    route_N[place] = route;
  }
};

}  // namespace magister::gpu
