// Checks MPI calls: the exception carries the text of the call, MPI's error text, rank and host.
#pragma once

#include <mpi.h>

#include <string>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "magister/parallel/communicator.h"

namespace magister {

inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("MPI error {}", code);
  return {text, static_cast<std::size_t>(length)};
}

inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  fail(ExitCode::kInternal,
       "rank {} on {}: {} failed: {} (the ranks cannot communicate any more); run the same command again",
       log_world_rank(), host_name(), call, mpi_error_text(code));
}

inline void require_threads(const char* because) {
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  MAGISTER_CHECK(level == MPI_THREAD_MULTIPLE, ExitCode::kConfig,
                 "this MPI ({}) does not let threads communicate ({}); use an Open MPI with UCX, or one rank",
                 mpi_library_version(), because);
}

}  // namespace magister

#define MAGISTER_CHECK_MPI(call) ::magister::check_mpi((call), #call)
