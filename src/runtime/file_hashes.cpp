// One thread hashes 1.4 GB/s if the CPU has SHA instructions and 0.4 GB/s if not (OpenSSL 3.0, Xeon of 2023). A copy
// from the page cache, at 5 to 10 GB/s, takes a fifth of that time; a disk takes as long as the hashing. So a spare
// thread reads the next blocks into a ring.
#include "runtime/file_hashes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <system_error>
#include <thread>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/file_descriptor.h"
#include "magister/core/sha256.h"
#include "magister/io/file_version.h"

namespace magister {
namespace {

// a block of one thread that reads and hashes; it stays in the core's cache
constexpr std::size_t kHashedBytes = 1 << 20;
constexpr std::size_t kBlockAhead = 4 << 20;
// Per file. A parallel file system gives one stream only a part of its bandwidth.
constexpr int kMostReaders = 4;

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    MAGISTER_CHECK(file_.is_open(), ExitCode::kInputOutput,
                   "{}: cannot be read ({}; its hash names the model in the results); "
                   "check the path and its permissions",
                   path, std::strerror(errno));
    version_ = file_version(file_.number());
    ::posix_fadvise(file_.number(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  // Returns fewer bytes than the block has only at the file's end.
  std::size_t read(std::span<std::byte> block, std::uint64_t offset) const {
    const BytesRead read = read_block(file_, offset, block);
    MAGISTER_CHECK(read.error == 0, ExitCode::kInputOutput,
                   "{}: reading broke off ({}; its hash names the model in the results); check the disk", path_,
                   std::strerror(read.error));
    return read.count;
  }

  void check_unchanged(std::uint64_t bytes_read) const {
    if (!version_) return;  // a pipe has neither size nor time
    MAGISTER_CHECK(file_version(file_.number()) == version_ && version_->bytes == bytes_read, ExitCode::kInputOutput,
                   "{}: was written to while it was hashed ({} bytes were read, and it had {} before; no hash names "
                   "such a file); leave it alone during a run, and run the same command again",
                   path_, bytes_read, version_->bytes);
  }

 private:
  const std::string& path_;
  FileDescriptor file_;
  std::optional<FileVersion> version_;
};

// Shared by the readers of a file and the thread that hashes it.
class BlocksAhead {
 public:
  BlocksAhead(const OpenFile& file, int readers) : file_(file), ring_(2 * static_cast<std::size_t>(readers) + 2) {
    for (Block& block : ring_) block.bytes.resize(kBlockAhead);
    try {
      for (int i = 0; i < readers; ++i) threads_.emplace_back([this] { read(); });
    } catch (const std::system_error&) {  // no more threads can start: the readers that run suffice
    }
  }
  ~BlocksAhead() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  BlocksAhead(const BlocksAhead&) = delete;
  BlocksAhead& operator=(const BlocksAhead&) = delete;

  bool any_reader() const { return !threads_.empty(); }

  // Waits for block `index`. The caller asks for the blocks in order and may use one until it asks for the next.
  std::span<const std::byte> wait_for(std::uint64_t index) {
    std::unique_lock lock(mutex_);
    oldest_ = index;
    changed_.notify_all();
    const Block& block = ring_[index % ring_.size()];
    changed_.wait(lock, [&] { return error_ || block.holds == index; });
    if (block.holds != index) std::rethrow_exception(error_);
    return std::span(block.bytes).first(block.filled);
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Block {
    std::vector<std::byte> bytes;
    std::size_t filled = 0;
    std::uint64_t holds = kNone;
  };

  void read() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ended_ || next_ < oldest_ + ring_.size(); });
      if (ended_) return;
      const std::uint64_t index = next_++;
      Block& block = ring_[index % ring_.size()];
      lock.unlock();
      std::exception_ptr error;
      std::size_t filled = 0;
      try {
        filled = file_.read(block.bytes, index * kBlockAhead);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) {
        if (!error_) error_ = error;
      } else {
        block.filled = filled;
        block.holds = index;
      }
      ended_ = ended_ || error || filled < kBlockAhead;
      changed_.notify_all();
    }
  }

  const OpenFile& file_;
  std::mutex mutex_;  // guards all members below; a reader fills the block that it took without the lock
  std::condition_variable changed_;
  std::vector<Block> ring_;
  std::uint64_t oldest_ = 0, next_ = 0;  // first block still needed, first block that no reader took
  bool ended_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

// Ends early if ends() returns true; then the hash has no meaning.
std::string hash_file(const std::string& path, int readers, const std::function<bool()>& ends) {
  const OpenFile file(path);
  Sha256 hash;
  std::uint64_t bytes = 0;
  const auto take = [&](std::span<const std::byte> block) {
    hash.update(block);
    bytes += block.size();
    fail_point("model.hash.block");
    return !ends();
  };
  std::optional<BlocksAhead> ahead;
  if (readers > 0) ahead.emplace(file, readers);
  bool goes_on = true;
  if (ahead && ahead->any_reader()) {
    for (std::uint64_t index = 0; goes_on; ++index) {
      const std::span<const std::byte> block = ahead->wait_for(index);
      goes_on = take(block);
      if (block.size() < kBlockAhead) break;
    }
  } else {
    std::vector<std::byte> block(kHashedBytes);
    for (std::size_t n = kHashedBytes; n == kHashedBytes && goes_on;) {
      n = file.read(block, bytes);
      goes_on = take(std::span(block).first(n));
    }
  }
  if (goes_on) file.check_unchanged(bytes);
  return hash.hex();
}

std::vector<std::size_t> largest_first(const std::vector<std::uint64_t>& bytes) {
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  return order;
}

}  // namespace

std::vector<std::string> hash_files(const std::vector<std::string>& paths, int threads, const StopPoll& poll) {
  const int files = static_cast<int>(paths.size());
  const int workers = std::clamp(files, 1, std::max(threads, 1));
  const int readers = std::clamp((threads - workers) / workers, 0, kMostReaders);
  std::vector<std::uint64_t> bytes;
  for (const std::string& path : paths) {
    struct stat status{};
    bytes.push_back(::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0);
  }
  const std::vector<std::size_t> order = largest_first(bytes);
  std::vector<std::string> hashes(paths.size());
  std::vector<std::exception_ptr> errors(paths.size());
  std::atomic<std::size_t> next{0}, running{0};
  std::atomic<bool> ends{false};
  const auto work = [&](const std::function<bool()>& stop) {
    for (std::size_t i; !ends && (i = next++) < order.size();) {
      try {
        hashes[order[i]] = hash_file(paths[order[i]], readers, stop);
      } catch (...) {
        errors[order[i]] = std::current_exception();
        ends = true;
      }
    }
  };
  std::vector<std::thread> others;
  try {
    for (int i = 1; i < workers; ++i) {
      ++running;
      others.emplace_back([&] {
        work([&] { return ends.load(); });
        --running;
      });
    }
  } catch (const std::system_error&) {  // no more threads can start: this thread hashes the rest
    --running;
  }
  const auto asked = [&] {
    if (poll && poll()) ends = true;
    return ends.load();
  };
  work(asked);
  while (running > 0 && !asked()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (std::thread& thread : others) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return hashes;
}

std::vector<int> divide_by_bytes(const std::vector<std::uint64_t>& bytes, const std::vector<int>& order) {
  std::vector<int> rank_of(bytes.size());
  std::vector<std::uint64_t> load(order.size());
  for (const std::size_t i : largest_first(bytes)) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += std::max<std::uint64_t>(bytes[i], 1);
    rank_of[i] = order[static_cast<std::size_t>(least - load.begin())];
  }
  return rank_of;
}

}  // namespace magister
