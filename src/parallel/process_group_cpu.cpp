// CPU groups: shards that are threads of this rank, over one rank or several. Every shard's contribution is laid side by
// side in shard order, locally through shared memory and between ranks by MPI, and added 0, 1, 2, ...: the same bits
// whether 4 shards are 4 threads, 4 ranks, or 2 x 2.
#include <ATen/ATen.h>

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/process_group.h"

namespace magister {
namespace {

// Where the shards of one rank meet. A shard that leaves early (an error) releases the others with an exception.
class Rendezvous {
 public:
  explicit Rendezvous(int num_threads) : num_threads_(num_threads) {}

  // The last thread to arrive runs `last_one` while the others wait; then all go on.
  template <typename Action>
  void meet(const Action& last_one) {
    std::unique_lock lock(mutex_);
    throw_if_abandoned();
    const std::uint64_t round = round_;
    if (++arrived_ == num_threads_) {
      arrived_ = 0;
      try {
        last_one();
      } catch (...) {
        abandoned_ = true;
        all_here_.notify_all();
        throw;
      }
      ++round_;
      all_here_.notify_all();
      return;
    }
    all_here_.wait(lock, [&] { return round_ != round || abandoned_; });
    if (round_ == round) throw_if_abandoned();  // a shard that left after this meeting did not spoil it
  }
  void abandon() noexcept {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    all_here_.notify_all();
  }

  std::vector<const void*> parts;  // by thread, valid between two meetings
  std::vector<std::byte> gathered; // all shards' parts in shard order

 private:
  void throw_if_abandoned() const {
    MAGISTER_CHECK(!abandoned_, ExitCode::kInternal,
                   "another shard of this rank failed (its part of the sum is missing); see its message");
  }
  int num_threads_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  bool abandoned_ = false;
  std::mutex mutex_;
  std::condition_variable all_here_;
};

template <typename T>
void add_in_order(const std::byte* all, std::size_t shards, std::size_t part_bytes, T* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    using Wide = std::conditional_t<std::is_integral_v<T>, T, float>;
    Wide sum{};
    for (std::size_t s = 0; s < shards; ++s) {
      T value;
      std::memcpy(&value, all + s * part_bytes + i * sizeof(T), sizeof(T));
      sum = s == 0 ? static_cast<Wide>(value) : sum + static_cast<Wide>(value);
    }
    out[i] = static_cast<T>(sum);
  }
}

class CpuProcessGroup final : public ProcessGroup {
 public:
  CpuProcessGroup(const Communicator& members, std::shared_ptr<Rendezvous> rendezvous, int thread, int num_threads)
      : ProcessGroup(members.rank() * num_threads + thread, members.size() * num_threads),
        members_(members), rendezvous_(std::move(rendezvous)), thread_(thread), num_threads_(num_threads) {}
  ~CpuProcessGroup() override { rendezvous_->abandon(); }

  std::string backend() const override { return members_.size() == 1 ? "threads" : "mpi"; }

  void all_reduce_sum(at::Tensor& tensor) override {
    if (tp_size() == 1) return;
    MAGISTER_ASSERT(tensor.is_contiguous() && tensor.device().is_cpu());
    const std::size_t bytes = tensor.nbytes();
    // Pieces keep the gathered copy small: 4 MiB a shard.
    constexpr std::size_t kPiece = 4 << 20;
    auto* data = static_cast<std::byte*>(tensor.data_ptr());
    for (std::size_t done = 0; done < bytes; done += kPiece) {
      const std::size_t piece = std::min(kPiece, bytes - done);
      gather_bytes(data + done, piece);
      const std::byte* all = rendezvous_->gathered.data();
      const auto shards = static_cast<std::size_t>(tp_size());
      AT_DISPATCH_ALL_TYPES_AND2(at::kBFloat16, at::kHalf, tensor.scalar_type(), "all_reduce_sum", [&] {
        add_in_order(all, shards, piece, reinterpret_cast<scalar_t*>(data + done), piece / sizeof(scalar_t));
      });
      rendezvous_->meet([] {});  // nobody overwrites `gathered` while another still adds
    }
  }

  at::Tensor all_gather(const at::Tensor& shard) override {
    const at::Tensor part = shard.contiguous();
    if (tp_size() == 1) return part;
    auto shape = part.sizes().vec();
    MAGISTER_ASSERT(!shape.empty());
    shape[0] *= tp_size();
    at::Tensor out = at::empty(shape, part.options());
    gather_bytes(static_cast<const std::byte*>(part.const_data_ptr()), part.nbytes());
    std::memcpy(out.data_ptr(), rendezvous_->gathered.data(), out.nbytes());
    rendezvous_->meet([] {});
    return out;
  }

  at::Tensor reduce_scatter(const at::Tensor& tensor) override {
    at::Tensor sum = tensor.clone().contiguous();
    all_reduce_sum(sum);
    const std::int64_t rows = sum.size(0) / tp_size();
    return sum.narrow(0, rows * tp_rank(), rows).clone();
  }

  void broadcast(at::Tensor& tensor, int root) override {
    if (tp_size() == 1) return;
    MAGISTER_ASSERT(tensor.is_contiguous());
    const int root_rank = root / num_threads_, root_thread = root % num_threads_;
    auto* data = static_cast<std::byte*>(tensor.data_ptr());
    publish(data);
    rendezvous_->meet([&] {
      rendezvous_->gathered.resize(tensor.nbytes());
      if (members_.rank() == root_rank) {
        std::memcpy(rendezvous_->gathered.data(), rendezvous_->parts[static_cast<std::size_t>(root_thread)], tensor.nbytes());
      }
      members_.broadcast(rendezvous_->gathered.data(), tensor.nbytes(), root_rank);
    });
    std::memcpy(data, rendezvous_->gathered.data(), tensor.nbytes());
    rendezvous_->meet([] {});
  }

  void barrier() override {
    rendezvous_->meet([&] { members_.barrier(); });
  }

 private:
  void publish(const void* data) {
    rendezvous_->meet([&] { rendezvous_->parts.resize(static_cast<std::size_t>(num_threads_)); });
    rendezvous_->parts[static_cast<std::size_t>(thread_)] = data;
  }

  // Afterwards rendezvous_->gathered holds all shards' parts in shard order, until the next meeting.
  void gather_bytes(const std::byte* part, std::size_t bytes) {
    publish(part);
    rendezvous_->meet([&] {
      const std::size_t rank_bytes = bytes * static_cast<std::size_t>(num_threads_);
      std::vector<std::byte>& all = rendezvous_->gathered;
      all.resize(rank_bytes * static_cast<std::size_t>(members_.size()));
      if (members_.size() == 1) {
        lay_out(all.data(), bytes);
        return;
      }
      std::vector<std::byte> mine(rank_bytes);
      lay_out(mine.data(), bytes);
      members_.all_gather(mine, all);
    });
  }

  void lay_out(std::byte* to, std::size_t bytes) const {
    for (std::size_t i = 0; i < rendezvous_->parts.size(); ++i) {
      std::memcpy(to + i * bytes, rendezvous_->parts[i], bytes);
    }
  }

  const Communicator& members_;
  std::shared_ptr<Rendezvous> rendezvous_;
  int thread_;
  int num_threads_;
};

const Communicator& nobody_else() {
  static const Communicator alone;
  return alone;
}

}  // namespace

std::vector<std::unique_ptr<ProcessGroup>> make_cpu_process_groups(const Communicator& members, int shards_per_rank) {
  const auto rendezvous = std::make_shared<Rendezvous>(shards_per_rank);
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (int i = 0; i < shards_per_rank; ++i) {
    groups.push_back(std::make_unique<CpuProcessGroup>(members, rendezvous, i, shards_per_rank));
  }
  return groups;
}

std::unique_ptr<ProcessGroup> make_single_process_group() {
  return std::move(make_cpu_process_groups(nobody_else(), 1).front());
}

std::vector<std::unique_ptr<ProcessGroup>> make_thread_process_groups(int num_shards) {
  return make_cpu_process_groups(nobody_else(), num_shards);
}

std::unique_ptr<ProcessGroup> make_mpi_process_group(const Communicator& members) {
  return std::move(make_cpu_process_groups(members, 1).front());
}

}  // namespace magister
