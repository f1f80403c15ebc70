// Requests of MPI 3.1: all are started, then all are waited for.
#include "magister/parallel/exchange.h"

#include <mpi.h>

#include <algorithm>
#include <vector>

#include "parallel/check.h"
#include "parallel/communicator_handle.h"

namespace magister {
namespace {

// MPI's counts are int.
template <typename Start>
void all_at_once(const Communicator& world, std::span<const Transfer> transfers, const Start& start) {
  if (transfers.empty()) return;
  const Communicator::Handle* const handle = world.handle();
  MAGISTER_CHECK(handle != nullptr, ExitCode::kInternal,
                 "an exchange on a communicator of one rank (nobody is there); report this");
  std::vector<MPI_Request> requests;
  for (const Transfer& transfer : transfers) {
    for (std::size_t done = 0; done < transfer.num_bytes;) {
      const std::size_t piece = std::min(handle->piece_bytes, transfer.num_bytes - done);
      MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
      MAGISTER_CHECK_MPI(
          start(transfer, static_cast<char*>(transfer.data) + done, static_cast<int>(piece), handle->comm, &request));
      done += piece;
    }
  }
  MAGISTER_CHECK_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
}

}  // namespace

void exchange(const Communicator& world, std::span<const Transfer> transfers, int tag) {
  all_at_once(world, transfers,
              [tag](const Transfer& transfer, char* data, int count, MPI_Comm comm, MPI_Request* request) {
                return transfer.sends ? MPI_Isend(data, count, MPI_BYTE, transfer.peer, tag, comm, request)
                                      : MPI_Irecv(data, count, MPI_BYTE, transfer.peer, tag, comm, request);
              });
}

void broadcast_all(const Communicator& world, std::span<const Transfer> transfers) {
  if (world.size() == 1) return;
  all_at_once(world, transfers,
              [](const Transfer& transfer, char* data, int count, MPI_Comm comm, MPI_Request* request) {
                return MPI_Ibcast(data, count, MPI_BYTE, transfer.peer, comm, request);
              });
}

}  // namespace magister
