// Requests of MPI 3.1: all are started together and then completed or polled.
#include "magister/parallel/exchange.h"

#include <mpi.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/check.h"
#include "parallel/communicator_handle.h"

namespace magister {
namespace {

// Starts one request per piece, because MPI's counts are int. If one fails, `requests` has those that were started.
template <typename Start>
void start_all(const Communicator& world, std::span<const Transfer> transfers, const Start& start,
               std::vector<MPI_Request>& requests) {
  if (transfers.empty()) return;
  const Communicator::Handle* const handle = world.handle();
  MAGISTER_CHECK(handle != nullptr, ExitCode::kInternal,
                 "an exchange on a communicator of one rank (there is no other rank); report this");
  for (const Transfer& transfer : transfers) {
    for (std::size_t done = 0; done < transfer.num_bytes;) {
      const std::size_t piece = std::min(handle->piece_bytes, transfer.num_bytes - done);
      MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
      MAGISTER_CHECK_MPI(
          start(transfer, static_cast<char*>(transfer.data) + done, static_cast<int>(piece), handle->comm, &request));
      done += piece;
    }
  }
}

void start_messages(const Communicator& world, std::span<const Transfer> transfers, int tag,
                    std::vector<MPI_Request>& requests) {
  const auto start = [tag](const Transfer& transfer, char* data, int count, MPI_Comm comm, MPI_Request* request) {
    return transfer.sends ? MPI_Isend(data, count, MPI_BYTE, transfer.peer, tag, comm, request)
                          : MPI_Irecv(data, count, MPI_BYTE, transfer.peer, tag, comm, request);
  };
  start_all(world, transfers, start, requests);
}

void wait_for(std::vector<MPI_Request>& requests) {
  MAGISTER_CHECK_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
}

}  // namespace

void exchange(const Communicator& world, std::span<const Transfer> transfers, int tag) {
  std::vector<MPI_Request> requests;
  start_messages(world, transfers, tag, requests);
  wait_for(requests);
}

void broadcast_all(const Communicator& world, std::span<const Transfer> transfers) {
  if (world.size() == 1) return;
  std::vector<MPI_Request> requests;
  const auto start = [](const Transfer& transfer, char* data, int count, MPI_Comm comm, MPI_Request* request) {
    return MPI_Ibcast(data, count, MPI_BYTE, transfer.peer, comm, request);
  };
  start_all(world, transfers, start, requests);
  wait_for(requests);
}

struct PendingExchange::State {
  std::vector<at::Tensor> kept;
  std::vector<MPI_Request> requests;
};

PendingExchange::PendingExchange(const Communicator& world, std::span<const Transfer> transfers, int tag,
                                 std::vector<at::Tensor> kept)
    : state_(std::make_unique<State>()) {
  state_->kept = std::move(kept);
  try {
    start_messages(world, transfers, tag, state_->requests);
  } catch (...) {
    leave_to_mpi();
    throw;
  }
}

PendingExchange::PendingExchange() = default;

PendingExchange::~PendingExchange() { leave_to_mpi(); }

// After an error it is unknown when the other ranks' messages arrive, so pending requests and their memory are left to
// MPI and not freed.
void PendingExchange::leave_to_mpi() {
  if (state_ != nullptr && !state_->requests.empty()) static_cast<void>(state_.release());
}

PendingExchange::PendingExchange(PendingExchange&& other) noexcept = default;

PendingExchange& PendingExchange::operator=(PendingExchange&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

bool PendingExchange::done() {
  if (state_ == nullptr) return true;
  int all = 0;
  MAGISTER_CHECK_MPI(
      MPI_Testall(static_cast<int>(state_->requests.size()), state_->requests.data(), &all, MPI_STATUSES_IGNORE));
  if (all == 0) return false;
  state_->requests.clear();
  state_.reset();
  return true;
}

void PendingExchange::wait() {
  if (state_ == nullptr) return;
  wait_for(state_->requests);
  state_->requests.clear();
  state_.reset();
}

bool threads_may_exchange() {
  int level = MPI_THREAD_SINGLE;
  MAGISTER_CHECK_MPI(MPI_Query_thread(&level));
  return level == MPI_THREAD_MULTIPLE;
}

}  // namespace magister
