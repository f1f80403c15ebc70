// Runs several rounds, each with other values, because a stale cache shows only in the next round.
#include "magister/io/shared_file_test.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "io/posix_file.h"
#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::uint64_t kPages = 3;
constexpr std::uint64_t kPageBytes = 4096;
constexpr int kRounds = 8;

// Around each border of two pages the ranks own the bytes in turn.
std::vector<std::uint64_t> places_of(int rank, int size) {
  std::vector<std::uint64_t> places;
  for (std::uint64_t border = 0; border <= kPages; ++border) {
    const std::uint64_t begin = border == 0 ? 0 : border * kPageBytes - 64,
                        end = std::min(begin + 128, kPages * kPageBytes);
    for (std::uint64_t at = begin; at < end; ++at) {
      if (at % static_cast<std::uint64_t>(size) == static_cast<std::uint64_t>(rank)) places.push_back(at);
    }
  }
  return places;
}

std::byte value_of(std::uint64_t place, int round) {
  return static_cast<std::byte>((place * 7 + static_cast<std::uint64_t>(round) * 31) % 251 + 1);
}

}  // namespace

std::string test_adjacent_bytes(const Communicator& world, const std::string& path) {
  std::optional<PosixFile> file;
  std::vector<std::byte> pages(kPages * kPageBytes);
  std::string problem;
  // Every step ends in a barrier, so no rank may leave early.
  const auto step = [&](const std::function<void()>& work) {
    try {
      if (problem.empty()) work();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    world.barrier();
  };
  step([&] {
    file.emplace(path);
    file->protect_neighbours();
    if (world.rank() != 0) return;
    file->write_at(0, pages);
    file->sync();
  });
  step([&] {
    file->reopen();
    file->read_at(0, pages);  // from here on this host caches them
  });
  for (int round = 0; round < kRounds; ++round) {
    step([&] {
      for (const std::uint64_t place : places_of(world.rank(), world.size())) {
        const std::byte value = value_of(place, round);
        file->write_at(place, std::span(&value, 1));
      }
      file->sync_data();
    });
    step([&] {
      file->reopen();
      file->read_at(0, pages);
      for (int rank = 0; rank < world.size() && problem.empty(); ++rank) {
        for (const std::uint64_t place : places_of(rank, world.size())) {
          if (pages[place] == value_of(place, round)) continue;
          problem = fmt::format(
              "byte {}, which rank {} wrote, is lost or not seen by rank {}: hosts overwrite each other's bytes", place,
              rank, world.rank());
          break;
        }
      }
    });
  }
  return problem;
}

}  // namespace magister
