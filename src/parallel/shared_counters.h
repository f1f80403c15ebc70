// A few u64 counters on rank 0, to which all ranks add. make_shared_counters() chooses one of three implementations:
// plain atomics (one rank); MPI one-sided (MPI_Win_allocate + MPI_Fetch_and_op, MPI 3.1 chapter 11); or a thread on
// rank 0 that answers messages, if MPI offers no window (Open MPI 4 over TCP without UCX has none with
// MPI_THREAD_MULTIPLE) or for a part of the job's ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace magister {

class Communicator;

class SharedCounters {
 public:
  virtual ~SharedCounters() = default;  // local
  // Adds to a counter and returns its previous value; add = 0 reads. From any rank and thread.
  virtual std::uint64_t fetch_add(int counter, std::uint64_t add) = 0;
  // Reads `count` counters from `first` on; the values may be from different moments. From any rank and thread.
  virtual std::vector<std::uint64_t> read(int first, int count) {
    std::vector<std::uint64_t> values;
    values.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) values.push_back(fetch_add(first + i, 0));
    return values;
  }
  // "local", "window" or "messages".
  virtual std::string kind() const = 0;
  // Frees the window. Call it after every rank's last fetch_add(). Collective over world.
  virtual void free() {}
};

// All counters are 0. Collective over world.
std::unique_ptr<SharedCounters> make_shared_counters(const Communicator& world, int num_counters);

}  // namespace magister
