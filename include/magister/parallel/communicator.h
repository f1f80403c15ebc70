// MpiSession and Communicator: the only owners of MPI_Init and MPI_Comm. Source: MPI 3.1 standard.
// Communicators carry host buffers only; tensors travel through ProcessGroup.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace magister {

// Starts and ends MPI. One object, in main, outliving everything that communicates. Asks for MPI_THREAD_MULTIPLE.
// The destructor finalizes; when an exception is in flight it does not (a job with a failed rank would hang): main calls
// abort_job() first.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // The job's work is done, and the process ends with this exit code even where MPI does not let go of it: 30 s after all ranks have come to
  // the destructor.
  void ends_with(int exit_code) { exit_code_ = exit_code; }

 private:
  int exit_code_ = 0;
};

// Ends the whole job with this exit code (MPI_Abort). Safe from any thread, before and after MPI_Init.
[[noreturn]] void abort_job(int exit_code) noexcept;

// Version of the MPI library in one line.
std::string mpi_library_version();

// A set of ranks that talk. Move-only; a moved-from or default-constructed object is "alone": rank 0 of 1, and every
// call on it is a local no-op. Frees its communicator locally unless MPI is already finalized; never collective.
class Communicator {
 public:
  Communicator();               // alone
  static Communicator world();  // duplicates MPI_COMM_WORLD. Collective over the world
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  ~Communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Collective over this communicator. A negative color returns an "alone" communicator.
  Communicator split(int color, int key) const;
  // The ranks that share this host's memory. Collective over this communicator.
  Communicator split_by_host() const;
  // Of the same ranks. Collective over this communicator.
  Communicator duplicate() const;
  // Of these of its ranks, ascending; the caller is one of them. Collective over those ranks alone.
  Communicator subset(const std::vector<int>& ranks) const;

  // All below: Collective over this communicator. Byte counts above 2 GiB are sent in pieces.
  void barrier() const;
  // A barrier that sleeps between looks and calls idle() each time, so that progress and a watchdog stay alive.
  void wait_for_all(const std::function<void()>& idle = {}) const;
  void broadcast(void* data, std::size_t num_bytes, int root) const;
  void broadcast(std::string& text, int root) const;
  std::uint64_t sum(std::uint64_t value) const;
  std::uint64_t max(std::uint64_t value) const;
  std::uint64_t min(std::uint64_t value) const;
  double sum(double value) const;
  double max(double value) const;
  double min(double value) const;
  // In place, on every rank, number by number; in whatever order MPI adds: the bits may depend on the number of ranks.
  void sum(std::span<float> values) const;
  // Sum over the ranks before this one (0 on rank 0).
  std::uint64_t exclusive_sum(std::uint64_t value) const;
  std::vector<std::uint64_t> all_gather(std::uint64_t value) const;
  // Result on every rank, by rank.
  std::vector<std::string> all_gather(const std::string& text) const;
  // Result on root only (empty elsewhere), by rank.
  std::vector<std::string> gather(const std::string& text, int root) const;
  // Every rank's equal-sized block, by rank. out has size() * block.size() bytes.
  void all_gather(std::span<const std::byte> block, std::span<std::byte> out) const;

  // Point to point, blocking, not collective: both sides give the same num_bytes. Throws Error(kInternal) on a communicator of one rank.
  void send(const void* data, std::size_t num_bytes, int destination, int tag) const;
  void receive(void* data, std::size_t num_bytes, int source, int tag) const;
  // The same below 2 GiB, sleeping between looks where receive() keeps a core busy.
  void receive_asleep(void* data, std::size_t num_bytes, int source, int tag, std::chrono::microseconds pause) const;

  // Opaque MPI_Comm for the files inside parallel/ only.
  struct Handle;
  const Handle* handle() const { return handle_.get(); }

 private:
  explicit Communicator(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace magister
