// One copy of a model's packed weights for the ranks of a host, which fill it together. Without it each rank has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "magister/parallel/communicator.h"
#include "magister/parallel/shared_memory.h"

namespace magister {

// Every rank asks for the same pieces in the same order. A piece is filled by the rank that claims it first, so the
// ranks divide the reading of the file, and a rank that comes late finds everything done. Local and for one thread,
// unless noted.
class HostCopy {
 public:
  // num_bytes: of all pieces, the same on every rank. Returns nullptr on every rank if they cannot share memory, or if
  // the kernel has no huge pages for it, without which decoding would be slower. Collective over host.
  static std::shared_ptr<HostCopy> make(const Communicator& host, std::size_t num_bytes);
  // True if these ranks could have a copy now, judged by a small piece of such memory; of one rank, if the kernel would
  // let several. The same on every rank. Collective over host.
  static bool works_on(const Communicator& host);
  // The number of ranks that have this copy together.
  int num_ranks() const { return num_ranks_; }

  // Begins a load: the next pieces are the first ones. Returns false if a load of this process already has it; the
  // caller then loads into its own memory.
  bool begin();
  // Memory for the next panels, aligned to 64 bytes; nullptr: there is no room.
  std::byte* cut(std::size_t num_bytes);

  // Calls `fill` if this rank is the first that asks for the next piece, which consists of all memory that was cut
  // since the piece before. If `fill` throws, no rank waits for the piece.
  void fill_once(const std::function<void()>& fill);
  // Returns when all pieces so far are filled. hook: called every few milliseconds; it may throw. If a rank could not
  // fill a piece, throws Error with the code of that rank's error.
  void wait(const std::function<void()>& hook) const;

 private:
  struct Header;
  HostCopy(std::shared_ptr<SharedMemory> memory, std::size_t num_bytes, int num_ranks)
      : memory_(std::move(memory)), size_(num_bytes), num_ranks_(num_ranks) {}
  Header& header() const;
  void take_huge_pages() const;

  std::shared_ptr<SharedMemory> memory_;
  std::size_t size_;
  int num_ranks_;
  std::size_t used_ = 0, piece_begin_ = 0;
  std::size_t num_pieces_ = 0;
  bool is_taken_ = false;
};

}  // namespace magister
