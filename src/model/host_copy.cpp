// The memory begins with the states of the pieces. Huge pages: the kernel gives them to shared memory on request only,
// by MADV_COLLAPSE (Linux 6.1). Source: madvise(2).
#include "magister/model/host_copy.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "magister/core/error.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // glibc older than 2.37
#endif

namespace magister {
namespace {

constexpr std::size_t kCopyPage = std::size_t{2} << 20, kCopyAlignment = 64;
constexpr std::size_t kMostPieces = std::size_t{1} << 20;

using CopyPiece = std::atomic<std::uint8_t>;
constexpr std::uint8_t kFree = 0, kClaimed = 1, kFilled = 2;
constexpr std::uint8_t kFailed = 128;  // plus the exit code of the error
static_assert(CopyPiece::is_always_lock_free, "ranks share it without locks");

std::size_t whole_units(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Returns 0, or the error. Its first byte is touched, because an empty range is refused. EAGAIN: the kernel holds a
// page of the range at this moment, for example because another process touches it.
int take_huge_page(std::byte* page) {
  constexpr int kAttempts = 4;
  *static_cast<volatile std::byte*>(page) = std::byte{0};
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (::madvise(page, kCopyPage, MADV_COLLAPSE) == 0) return 0;
    if (errno != EAGAIN) return errno;
  }
  return EAGAIN;
}

// Returns nullptr on every rank if they cannot share memory, or if the kernel has no huge pages for it.
std::shared_ptr<SharedMemory> memory_of_host(const Communicator& host, std::size_t num_bytes) {
  std::shared_ptr<SharedMemory> memory = SharedMemory::make(host, num_bytes);
  if (memory == nullptr) return nullptr;
  // One rank asks: where several touch a new page at a time, the kernel refuses some of them. A lack of huge pages is
  // no reason for a copy of each rank's own, which would lack them, too.
  const bool is_refused = host.rank() == 0 && take_huge_page(memory->data()) == EINVAL;
  return host.max(std::uint64_t{is_refused ? 1u : 0u}) == 0 ? memory : nullptr;
}

}  // namespace

// Zeroed shared memory: all pieces are free.
struct HostCopy::Header {
  CopyPiece pieces[kMostPieces];
};

std::shared_ptr<HostCopy> HostCopy::make(const Communicator& host, std::size_t num_bytes) {
  if (host.size() == 1) return nullptr;
  const std::size_t size = whole_units(sizeof(Header), kCopyPage) + whole_units(num_bytes, kCopyPage);
  std::shared_ptr<SharedMemory> memory = memory_of_host(host, size);
  if (memory == nullptr) return nullptr;
  return std::shared_ptr<HostCopy>(new HostCopy(std::move(memory), size, host.size()));
}

bool HostCopy::works_on(const Communicator& host) { return memory_of_host(host, kCopyPage) != nullptr; }

HostCopy::Header& HostCopy::header() const { return *std::launder(reinterpret_cast<Header*>(memory_->data())); }

bool HostCopy::begin() {
  if (std::exchange(is_taken_, true)) return false;
  used_ = piece_begin_ = whole_units(sizeof(Header), kCopyPage);
  return true;
}

std::byte* HostCopy::cut(std::size_t num_bytes) {
  const std::size_t bytes = whole_units(num_bytes, kCopyAlignment);
  if (bytes > size_ - used_ || num_pieces_ >= kMostPieces) return nullptr;
  return memory_->data() + std::exchange(used_, used_ + bytes);
}

// A huge page that begins in the piece is taken before the piece is written.
void HostCopy::take_huge_pages() const {
  for (std::size_t at = whole_units(piece_begin_, kCopyPage); at < used_; at += kCopyPage)
    if (take_huge_page(memory_->data() + at) != 0) return;  // pages of 4 KiB hold the same numbers
}

void HostCopy::fill_once(const std::function<void()>& fill) {
  MAGISTER_ASSERT(num_pieces_ < kMostPieces);
  CopyPiece& piece = header().pieces[num_pieces_++];
  std::uint8_t state = kFree;
  if (piece.compare_exchange_strong(state, kClaimed)) {
    try {
      take_huge_pages();
      fill();
    } catch (const Error& error) {
      piece.store(static_cast<std::uint8_t>(kFailed + static_cast<int>(error.code())), std::memory_order_release);
      throw;
    } catch (...) {
      piece.store(static_cast<std::uint8_t>(kFailed + static_cast<int>(ExitCode::kInternal)),
                  std::memory_order_release);
      throw;
    }
    piece.store(kFilled, std::memory_order_release);
  }
  piece_begin_ = used_;
}

void HostCopy::wait(const std::function<void()>& hook) const {
  constexpr std::chrono::milliseconds kPause{2};
  for (std::size_t i = 0; i < num_pieces_; ++i) {
    while (true) {
      const std::uint8_t state = header().pieces[i].load(std::memory_order_acquire);
      if (state == kFilled) break;
      MAGISTER_CHECK(state < kFailed, static_cast<ExitCode>(state - kFailed),
                     "another rank of this host could not read the model, which both would have used; its message "
                     "says why");
      if (hook) hook();
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace magister
