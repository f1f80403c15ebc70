// fork(): the child has a copy of this process's memory, so HDF5 behaves there as it would here. It writes nothing and
// exits without destructors.
#include "io/results/foreign.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "io/results/columns.h"
#include "io/results/layout.h"
#include "io/results/text_heap.h"
#include "magister/core/error.h"

namespace magister {
namespace {

constexpr rlim_t kSeconds = 60;  // CPU time; the metadata of 10^7 records takes some milliseconds

// Reads the first and last rows: HDF5 then reads the index of chunks and unpacks a chunk.
void try_packed(const ResultsColumns& columns) {
  for (const PlacedColumn& column : columns.all()) {
    if (!column.is_packed || column.spec.num_rows == 0) continue;
    for (const std::uint64_t row : {std::uint64_t{0}, column.spec.num_rows - 1}) {
      if (column.spec.type == ColumnType::kText) {
        TextHeap(columns, column).text(row);
        continue;
      }
      std::vector<std::byte> bytes(column.row_bytes());
      columns.read(column, row, bytes);
    }
  }
}

[[noreturn]] void read_and_end(const std::string& path) {
  const rlimit seconds{kSeconds, kSeconds};
  ::setrlimit(RLIMIT_CPU, &seconds);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  try {
    read_attributes(path);
    const ResultsColumns columns(PosixFile(path, PosixFile::Access::kRead), read_layout(path));
    try_packed(columns);
    read_default_plot(path);
  } catch (...) {
    // The file is refused with an Error: the parent process will throw the same one.
  }
  ::_exit(0);
}

}  // namespace

void try_in_a_copy(const std::string& path) {
  const pid_t copy = ::fork();
  if (copy < 0) return;
  if (copy == 0) read_and_end(path);
  int status = 0;
  while (::waitpid(copy, &status, 0) < 0) {
    if (errno != EINTR) return;
  }
  const bool lives = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  MAGISTER_CHECK(
      lives, ExitCode::kData,
      "{}: the HDF5 library cannot read it ({} {} ended an attempt; the file is damaged or was made to do so); use "
      "another file",
      printable(path), WIFSIGNALED(status) ? "signal" : "status",
      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

ResultsReader open_foreign_results(const std::string& path) {
  try_in_a_copy(path);
  return ResultsReader(path);
}

}  // namespace magister
