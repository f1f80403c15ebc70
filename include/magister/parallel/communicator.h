// MpiSession and Communicator: the only owners of MPI_Init and MPI_Comm. Communicators send host buffers only; tensors
// are sent by ProcessGroup. Source: MPI 3.1 standard.
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

// Starts and ends MPI. main has one object, which outlives all communication. Requests MPI_THREAD_MULTIPLE. The
// destructor calls MPI_Finalize, except while an exception is in flight (a job with a failed rank would hang): main
// then calls abort_job() first.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // Call it when the job's work is done. The process then ends with this exit code even if MPI_Finalize hangs: 30 s
  // after all ranks have reached the destructor.
  void ends_with(int exit_code) { exit_code_ = exit_code; }

 private:
  int exit_code_ = 0;
};

// Ends the whole job with this exit code (MPI_Abort). Safe from any thread, and before MPI_Init and after MPI_Finalize.
[[noreturn]] void abort_job(int exit_code) noexcept;

// The version of the MPI library in one line.
std::string mpi_library_version();

// A set of ranks that communicate. Move-only. A moved-from or default-constructed object is "alone": rank 0 of 1, and
// every call on it is a local no-op. The destructor frees the communicator without communicating, unless MPI is
// finalized or an exception is in flight.
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
  // The ranks on this host, which share its memory. Collective over this communicator.
  Communicator split_by_host() const;
  // A communicator of the same ranks. Collective over this communicator.
  Communicator duplicate() const;
  // A communicator of these of its ranks (ascending); the caller must be one of them. Collective over those ranks only.
  Communicator subset(const std::vector<int>& ranks) const;

  // All below: Collective over this communicator. Messages above 1 GiB are sent in pieces.
  void barrier() const;
  // A barrier that sleeps between polls and calls idle() at each poll, so that progress is shown and the watchdog is
  // fed.
  void wait_for_all(const std::function<void()>& idle = {}) const;
  void broadcast(void* data, std::size_t num_bytes, int root) const;
  void broadcast(std::string& text, int root) const;
  std::uint64_t sum(std::uint64_t value) const;
  std::uint64_t max(std::uint64_t value) const;
  std::uint64_t min(std::uint64_t value) const;
  double sum(double value) const;
  double max(double value) const;
  double min(double value) const;
  // Sums element by element, in place, on every rank. MPI chooses the order of additions, so the bits may depend on the
  // number of ranks.
  void sum(std::span<float> values) const;
  // Sum over the ranks before this one (0 on rank 0).
  std::uint64_t exclusive_sum(std::uint64_t value) const;
  std::vector<std::uint64_t> all_gather(std::uint64_t value) const;
  // The result is on every rank, in rank order.
  std::vector<std::string> all_gather(const std::string& text) const;
  // The result is on root only (empty on other ranks), in rank order.
  std::vector<std::string> gather(const std::string& text, int root) const;
  // Gathers blocks of equal size from all ranks, in rank order. out has size() * block.size() bytes.
  void all_gather(std::span<const std::byte> block, std::span<std::byte> out) const;

  // Blocking point-to-point messages; not collective. Both sides must give the same num_bytes. Throws Error(kInternal)
  // on a communicator of one rank.
  void send(const void* data, std::size_t num_bytes, int destination, int tag) const;
  void receive(void* data, std::size_t num_bytes, int source, int tag) const;
  // receive() for at most 1 GiB that sleeps between polls; receive() keeps a core busy.
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
