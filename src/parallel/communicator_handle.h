// The MPI_Comm of a Communicator, for the files of this module only.
#pragma once

#include <mpi.h>

#include <cstddef>

#include "magister/parallel/communicator.h"

namespace magister {

struct Communicator::Handle {
  MPI_Comm comm = MPI_COMM_NULL;
  // MPI's counts are int, so longer messages are sent in pieces. Tests use a small value.
  mutable std::size_t piece_bytes = std::size_t{1} << 30;

  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle();  // frees without communicating, unless MPI is finalized or an exception is in flight
};

}  // namespace magister
