// MPI_Init, MPI_Comm and host buffers. MPI returns errors as codes, which become exceptions here. Source: MPI 3.1.
#include "magister/parallel/communicator.h"

#include <mpi.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "parallel/check.h"
#include "parallel/communicator_handle.h"
#include "parallel/mpi_components.h"
#include "parallel/mpi_variables.h"

namespace magister {
namespace {

// Used only in this file; the tags of callers start at 0.
constexpr int kGatherTag = 32000;
// MPI_Abort was seen to hang with a broken network. After this time the process ends by itself, which its launcher
// notices.
constexpr auto kAbortPatience = std::chrono::seconds(3);
// MPI_Finalize of Open MPI 4.1.4 was seen to hang: it waits for its event thread, which waits for a lock that no longer
// exists.
constexpr auto kFinalizePatience = std::chrono::seconds(30);

// mpirun reads a rank's pipe and the message of MPI_Abort separately; on a busy machine it was seen to print "MPI_ABORT
// was invoked" before the rank's own message. So the rank checks its pipe up to kReadPatience times, a millisecond
// apart, until mpirun has emptied it (counted and not timed, because the clock also runs while the machine is stopped).
// Then it waits kPassOn, in which mpirun prints the line.
constexpr int kReadPatience = 500;
constexpr auto kPassOn = std::chrono::milliseconds(50);

bool mpi_is_up() {
  int started = 0, finalized = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&finalized);
  return started != 0 && finalized == 0;
}

template <typename Call>
void in_pieces(const Communicator::Handle& handle, std::size_t num_bytes, const Call& call) {
  for (std::size_t done = 0; done < num_bytes;) {
    const std::size_t piece = std::min(handle.piece_bytes, num_bytes - done);
    call(done, static_cast<int>(piece));
    done += piece;
  }
}

void wait_until_read(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  int unread = 1;
  for (int looks = 0; looks < kReadPatience && ioctl(descriptor, FIONREAD, &unread) == 0 && unread > 0; ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(kPassOn);
}

// Waits until all ranks have reached the destructor. MPI_Finalize waits for them in any case; its further work is local
// and takes milliseconds. False: MPI reports an error.
bool all_have_come() {
  MPI_Request request = MPI_REQUEST_NULL;
  int come = 0;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return false;
  while (MPI_Test(&request, &come, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
    if (come != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

template <typename Duration>
void exit_after(Duration patience, int exit_code) {
  try {
    std::thread([patience, exit_code] {
      std::this_thread::sleep_for(patience);
      _exit(exit_code);
    }).detach();
  } catch (...) {  // no thread could be started, so there is no time limit
  }
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  const MpiVariables variables;
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() != 0 || !mpi_is_up()) return;
  keep_mpi_components();
  if (all_have_come()) {  // all work is done and written, so a hang may be cut short
    std::fflush(nullptr);
    exit_after(kFinalizePatience, exit_code_);
  }
  MPI_Finalize();
}

void abort_job(int exit_code) noexcept {
  static std::atomic<bool> begun{false};
  if (begun.exchange(true)) {  // another thread already ends the job, with its own code
    std::this_thread::sleep_for(2 * kAbortPatience);
    _exit(exit_code);
  }
  exit_after(kAbortPatience, exit_code);
  std::fflush(stderr);
  std::fflush(stdout);
  if (mpi_is_up()) {
    wait_until_read(STDERR_FILENO);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  _exit(exit_code);
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

Communicator::Handle::~Handle() {
  if (comm != MPI_COMM_NULL && mpi_is_up() && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm);
}

Communicator::Communicator() = default;

Communicator::Communicator(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {
  MPI_Comm_set_errhandler(handle_->comm, MPI_ERRORS_RETURN);
  MAGISTER_CHECK_MPI(MPI_Comm_rank(handle_->comm, &rank_));
  MAGISTER_CHECK_MPI(MPI_Comm_size(handle_->comm, &size_));
}

Communicator::Communicator(Communicator&& other) noexcept
    : handle_(std::move(other.handle_)), rank_(std::exchange(other.rank_, 0)), size_(std::exchange(other.size_, 1)) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  handle_ = std::move(other.handle_);
  rank_ = std::exchange(other.rank_, 0);
  size_ = std::exchange(other.size_, 1);
  return *this;
}

Communicator::~Communicator() = default;

Communicator Communicator::world() {
  if (!mpi_is_up()) return {};
  auto handle = std::make_unique<Handle>();
  MAGISTER_CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &handle->comm));
  return Communicator(std::move(handle));
}

Communicator Communicator::split(int color, int key) const {
  if (!handle_) return {};
  auto handle = std::make_unique<Handle>();
  MAGISTER_CHECK_MPI(MPI_Comm_split(handle_->comm, color < 0 ? MPI_UNDEFINED : color, key, &handle->comm));
  if (handle->comm == MPI_COMM_NULL) return {};
  return Communicator(std::move(handle));
}

Communicator Communicator::split_by_host() const {
  if (!handle_) return {};
  auto handle = std::make_unique<Handle>();
  MAGISTER_CHECK_MPI(MPI_Comm_split_type(handle_->comm, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &handle->comm));
  return Communicator(std::move(handle));
}

Communicator Communicator::duplicate() const {
  if (!handle_) return {};
  auto handle = std::make_unique<Handle>();
  MAGISTER_CHECK_MPI(MPI_Comm_dup(handle_->comm, &handle->comm));
  return Communicator(std::move(handle));
}

Communicator Communicator::subset(const std::vector<int>& ranks) const {
  if (!handle_) return {};
  struct Group {
    MPI_Group group = MPI_GROUP_NULL;
    ~Group() {
      if (group != MPI_GROUP_NULL) MPI_Group_free(&group);
    }
  } all, some;
  MAGISTER_CHECK_MPI(MPI_Comm_group(handle_->comm, &all.group));
  MAGISTER_CHECK_MPI(MPI_Group_incl(all.group, static_cast<int>(ranks.size()), ranks.data(), &some.group));
  auto handle = std::make_unique<Handle>();
  MAGISTER_CHECK_MPI(MPI_Comm_create_group(handle_->comm, some.group, 0, &handle->comm));
  return Communicator(std::move(handle));
}

void Communicator::barrier() const {
  if (handle_) MAGISTER_CHECK_MPI(MPI_Barrier(handle_->comm));
}

void Communicator::wait_for_all(const std::function<void()>& idle) const {
  if (!handle_) return;
  MPI_Request request = MPI_REQUEST_NULL;
  MAGISTER_CHECK_MPI(MPI_Ibarrier(handle_->comm, &request));
  for (int done = 0;;) {
    MAGISTER_CHECK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done != 0) return;
    if (idle) idle();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Communicator::broadcast(void* data, std::size_t num_bytes, int root) const {
  if (!handle_) return;
  in_pieces(*handle_, num_bytes, [&](std::size_t at, int count) {
    MAGISTER_CHECK_MPI(MPI_Bcast(static_cast<char*>(data) + at, count, MPI_BYTE, root, handle_->comm));
  });
}

void Communicator::broadcast(std::string& text, int root) const {
  std::uint64_t size = text.size();
  broadcast(&size, sizeof size, root);
  text.resize(size);
  broadcast(text.data(), size, root);
}

namespace {

template <typename T>
T reduce_one(const Communicator::Handle* handle, T value, MPI_Datatype type, MPI_Op op) {
  if (handle == nullptr) return value;
  T result{};
  MAGISTER_CHECK_MPI(MPI_Allreduce(&value, &result, 1, type, op, handle->comm));
  return result;
}

}  // namespace

std::uint64_t Communicator::sum(std::uint64_t v) const { return reduce_one(handle(), v, MPI_UINT64_T, MPI_SUM); }
std::uint64_t Communicator::max(std::uint64_t v) const { return reduce_one(handle(), v, MPI_UINT64_T, MPI_MAX); }
std::uint64_t Communicator::min(std::uint64_t v) const { return reduce_one(handle(), v, MPI_UINT64_T, MPI_MIN); }
double Communicator::sum(double v) const { return reduce_one(handle(), v, MPI_DOUBLE, MPI_SUM); }
double Communicator::max(double v) const { return reduce_one(handle(), v, MPI_DOUBLE, MPI_MAX); }
double Communicator::min(double v) const { return reduce_one(handle(), v, MPI_DOUBLE, MPI_MIN); }

void Communicator::sum(std::span<float> values) const {
  if (!handle_) return;
  const std::size_t most = std::max<std::size_t>(handle_->piece_bytes / sizeof(float), 1);
  for (std::size_t done = 0; done < values.size(); done += most) {
    const auto count = static_cast<int>(std::min(most, values.size() - done));
    MAGISTER_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, values.data() + done, count, MPI_FLOAT, MPI_SUM, handle_->comm));
  }
}

std::uint64_t Communicator::exclusive_sum(std::uint64_t value) const {
  if (!handle_) return 0;
  std::uint64_t result = 0;
  MAGISTER_CHECK_MPI(MPI_Exscan(&value, &result, 1, MPI_UINT64_T, MPI_SUM, handle_->comm));
  return rank_ == 0 ? 0 : result;
}

std::vector<std::uint64_t> Communicator::all_gather(std::uint64_t value) const {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size_), value);
  if (handle_) {
    MAGISTER_CHECK_MPI(MPI_Allgather(&value, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, handle_->comm));
  }
  return all;
}

std::vector<std::string> Communicator::all_gather(const std::string& text) const {
  if (!handle_) return {text};
  const std::vector<std::uint64_t> sizes = all_gather(static_cast<std::uint64_t>(text.size()));
  std::uint64_t total = 0;
  for (const std::uint64_t size : sizes) total += size;
  std::vector<std::string> all(sizes.size());
  if (total >= handle_->piece_bytes) {
    all[static_cast<std::size_t>(rank_)] = text;
    for (int root = 0; root < size_; ++root) broadcast(all[static_cast<std::size_t>(root)], root);
    return all;
  }
  std::vector<int> counts, begins;
  int end = 0;
  for (const std::uint64_t size : sizes) {
    begins.push_back(end);
    counts.push_back(static_cast<int>(size));
    end += static_cast<int>(size);
  }
  std::string joined(total, '\0');
  MAGISTER_CHECK_MPI(MPI_Allgatherv(text.data(), static_cast<int>(text.size()), MPI_BYTE, joined.data(), counts.data(),
                                    begins.data(), MPI_BYTE, handle_->comm));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = joined.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(counts[i]));
  }
  return all;
}

std::vector<std::string> Communicator::gather(const std::string& text, int root) const {
  if (rank_ != root) {
    const std::uint64_t size = text.size();
    send(&size, sizeof size, root, kGatherTag);
    send(text.data(), text.size(), root, kGatherTag);
    return {};
  }
  std::vector<std::string> all(static_cast<std::size_t>(size_));
  for (int source = 0; source < size_; ++source) {
    std::string& part = all[static_cast<std::size_t>(source)];
    if (source == root) {
      part = text;
      continue;
    }
    std::uint64_t size = 0;
    receive(&size, sizeof size, source, kGatherTag);
    part.resize(size);
    receive(part.data(), size, source, kGatherTag);
  }
  return all;
}

void Communicator::all_gather(std::span<const std::byte> block, std::span<std::byte> out) const {
  MAGISTER_ASSERT(out.size() == block.size() * static_cast<std::size_t>(size_));
  if (!handle_) {
    std::copy(block.begin(), block.end(), out.begin());
    return;
  }
  if (block.size() < handle_->piece_bytes / static_cast<std::size_t>(size_)) {
    const int count = static_cast<int>(block.size());
    MAGISTER_CHECK_MPI(MPI_Allgather(block.data(), count, MPI_BYTE, out.data(), count, MPI_BYTE, handle_->comm));
    return;
  }
  std::copy(block.begin(), block.end(), out.begin() + static_cast<std::ptrdiff_t>(block.size()) * rank_);
  for (int root = 0; root < size_; ++root) {
    broadcast(out.data() + block.size() * static_cast<std::size_t>(root), block.size(), root);
  }
}

void Communicator::send(const void* data, std::size_t num_bytes, int destination, int tag) const {
  MAGISTER_CHECK(handle_ != nullptr, ExitCode::kInternal,
                 "send on a communicator of one rank (there is no receiver); report this");
  in_pieces(*handle_, num_bytes, [&](std::size_t at, int count) {
    MAGISTER_CHECK_MPI(MPI_Send(static_cast<const char*>(data) + at, count, MPI_BYTE, destination, tag, handle_->comm));
  });
}

void Communicator::receive(void* data, std::size_t num_bytes, int source, int tag) const {
  MAGISTER_CHECK(handle_ != nullptr, ExitCode::kInternal,
                 "receive on a communicator of one rank (there is no sender); report this");
  in_pieces(*handle_, num_bytes, [&](std::size_t at, int count) {
    MAGISTER_CHECK_MPI(
        MPI_Recv(static_cast<char*>(data) + at, count, MPI_BYTE, source, tag, handle_->comm, MPI_STATUS_IGNORE));
  });
}

void Communicator::receive_asleep(void* data, std::size_t num_bytes, int source, int tag,
                                  std::chrono::microseconds pause) const {
  MAGISTER_CHECK(handle_ != nullptr && num_bytes <= handle_->piece_bytes, ExitCode::kInternal,
                 "receive_asleep of {} bytes on a communicator of {} (one message from another rank); report this",
                 num_bytes, size_);
  MPI_Request request = MPI_REQUEST_NULL;
  // MPI_Test completes the request. NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker)
  MAGISTER_CHECK_MPI(MPI_Irecv(data, static_cast<int>(num_bytes), MPI_BYTE, source, tag, handle_->comm, &request));
  for (int done = 0;;) {
    MAGISTER_CHECK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done != 0) return;
    std::this_thread::sleep_for(pause);
  }
  // NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)
}

}  // namespace magister
