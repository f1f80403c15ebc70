// CPU groups: shards that are threads of this rank, over one rank or several. Each shard adds all contributions to its
// own share of a tensor in shard order 0, 1, 2, ..., and then the shares are joined: the bits are the same for four
// threads, four ranks, or two threads on each of two ranks. Between ranks: MPI_Alltoallv of the shares, then
// MPI_Allgatherv.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "parallel/check.h"
#include "parallel/communicator_handle.h"
#include "parallel/ordered_sum.h"
#include "parallel/rendezvous.h"

namespace magister {
namespace {

// Up to this many bytes over all shards, every shard adds everything: one exchange instead of two (a decode step's
// sum).
constexpr std::size_t kSmallBytes = 64 << 10;
// Longer tensors are sent in pieces of this many bytes per shard: buffers stay in cache (4 MiB pieces were 10 % slower
// on two ranks), and counts fit MPI's int.
constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::size_t kMostCount = std::numeric_limits<int>::max();

struct ByteRange {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

// The data of one shard for a meeting.
struct Contribution {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  c10::ScalarType type = c10::ScalarType::Undefined;
  std::string_view operation;
};

// State that the shards of one rank share. The last thread that arrives at a meeting writes the buffers; all read them
// after it.
struct RankShards {
  RankShards(Communicator own, int num_threads)
      : ranks(std::move(own)),
        num_threads(num_threads),
        rendezvous(num_threads, num_threads <= usable_cores()),
        parts(static_cast<std::size_t>(num_threads)) {}

  Communicator ranks;  // a duplicate, so no other messages interfere
  int num_threads;
  Rendezvous rendezvous;
  std::vector<Contribution> parts;  // by thread
  std::vector<std::byte> outgoing, gathered, sum;

  int num_shards() const { return ranks.size() * num_threads; }
  bool spans_ranks() const { return ranks.size() > 1; }

  // Called by the last thread that arrives: shards that disagree about the operation would give a wrong sum silently.
  void check_agreement() const {
    for (const Contribution& part : parts) {
      MAGISTER_CHECK(part.bytes == parts[0].bytes && part.type == parts[0].type && part.operation == parts[0].operation,
                     ExitCode::kInternal,
                     "shards of rank {} meet in {} with {} bytes of {} and in {} with {} bytes of {} (their sum would "
                     "be wrong); report this",
                     ranks.rank(), parts[0].operation, parts[0].bytes, c10::toString(parts[0].type), part.operation,
                     part.bytes, c10::toString(part.type));
    }
  }

  void lay_side_by_side(std::vector<std::byte>& to, ByteRange range) const {
    to.resize(range.size() * parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::memcpy(to.data() + i * range.size(), parts[i].data + range.begin, range.size());
    }
  }

  // Sets `gathered` to that range of all shards' contributions, in shard order.
  void gather(ByteRange range) {
    if (!spans_ranks()) return lay_side_by_side(gathered, range);
    lay_side_by_side(outgoing, range);
    gathered.resize(outgoing.size() * static_cast<std::size_t>(ranks.size()));
    ranks.all_gather(outgoing, gathered);
  }

  // shares[j]: the range that shard j adds, equal on all shards. Sets `gathered` to all shards' contributions to the
  // shares of this rank's shards: for each shard in order, its contributions to these shares one after another.
  void exchange(const std::vector<ByteRange>& shares) {
    const auto num_ranks = static_cast<std::size_t>(ranks.size()), threads = parts.size();
    const auto rank = static_cast<std::size_t>(ranks.rank());
    // The shares of a single thread are sent in place; those of several threads are packed by receiving rank.
    const bool packed = threads > 1 || shares.back().end > kMostCount;
    std::vector<int> out_counts, out_begins, in_counts, in_begins;
    outgoing.clear();
    std::size_t own_bytes = 0;
    for (std::size_t j = rank * threads; j < (rank + 1) * threads; ++j) own_bytes += shares[j].size();
    for (std::size_t to = 0; to < num_ranks; ++to) {
      out_begins.push_back(static_cast<int>(packed ? outgoing.size() : shares[to].begin));
      if (packed) pack(shares, to);
      out_counts.push_back(static_cast<int>(packed ? outgoing.size() : shares[to].end) - out_begins.back());
      in_counts.push_back(static_cast<int>(own_bytes * threads));
      in_begins.push_back(static_cast<int>(own_bytes * threads * to));
    }
    gathered.resize(own_bytes * threads * num_ranks);
    MAGISTER_CHECK_MPI(MPI_Alltoallv(packed ? outgoing.data() : parts[0].data, out_counts.data(), out_begins.data(),
                                     MPI_BYTE, gathered.data(), in_counts.data(), in_begins.data(), MPI_BYTE,
                                     ranks.handle()->comm));
  }

  void pack(const std::vector<ByteRange>& shares, std::size_t to) {
    for (const Contribution& part : parts) {
      for (std::size_t j = to * parts.size(); j < (to + 1) * parts.size(); ++j) {
        outgoing.insert(outgoing.end(), part.data + shares[j].begin, part.data + shares[j].end);
      }
    }
  }

  // Sends every rank's shares of the sum, which are at their positions in `total`, to all ranks.
  void share_sum(std::byte* total, const std::vector<ByteRange>& shares) {
    std::vector<int> counts, begins;
    for (std::size_t first = 0; first < shares.size(); first += parts.size()) {
      begins.push_back(static_cast<int>(shares[first].begin));
      counts.push_back(static_cast<int>(shares[first + parts.size() - 1].end - shares[first].begin));
    }
    MAGISTER_CHECK_MPI(
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, total, counts.data(), begins.data(), MPI_BYTE, ranks.handle()->comm));
  }
};

class CpuProcessGroup final : public ProcessGroup {
 public:
  CpuProcessGroup(std::shared_ptr<RankShards> shards, int thread)
      : ProcessGroup(shards->ranks.rank() * shards->num_threads + thread, shards->num_shards()),
        shards_(std::move(shards)),
        thread_(static_cast<std::size_t>(thread)) {}
  CpuProcessGroup(const CpuProcessGroup&) = delete;
  CpuProcessGroup& operator=(const CpuProcessGroup&) = delete;
  ~CpuProcessGroup() override { shards_->rendezvous.abandon(); }

  std::string backend() const override { return shards_->spans_ranks() ? "mpi" : "threads"; }

  void all_reduce_sum(at::Tensor& tensor) override {
    check(tensor, "all_reduce_sum");
    if (tp_size() == 1 || tensor.nbytes() == 0) return;
    auto* data = static_cast<std::byte*>(tensor.data_ptr());
    const std::size_t bytes = tensor.nbytes(), item = tensor.element_size();
    if (bytes * static_cast<std::size_t>(tp_size()) <= kSmallBytes) return sum_small(tensor, data, bytes);
    for (std::size_t done = 0; done < bytes; done += kPieceBytes) {
      const std::size_t piece = std::min(kPieceBytes, bytes - done);
      std::vector<ByteRange> shares;
      const std::size_t elements = piece / item, shares_in_all = static_cast<std::size_t>(tp_size());
      shares.reserve(shares_in_all);
      for (std::size_t j = 0; j < shares_in_all; ++j) {
        shares.push_back({elements * j / shares_in_all * item, elements * (j + 1) / shares_in_all * item});
      }
      const bool alone_here = shards_->num_threads == 1;  // the sum is then made in the tensor itself
      meet({data + done, piece, tensor.scalar_type(), "all_reduce_sum"}, [&] {
        if (!alone_here) shards_->sum.resize(piece);
        if (shards_->spans_ranks()) shards_->exchange(shares);
      });
      std::byte* total = alone_here ? data + done : shards_->sum.data();
      const ByteRange own = shares[static_cast<std::size_t>(tp_rank())];
      add_in_shard_order(tensor.scalar_type(), contributions_to(shares), total + own.begin, own.size() / item);
      shards_->rendezvous.meet([&] {
        if (shards_->spans_ranks()) shards_->share_sum(total, shares);
      });
      // `sum` is written again only after all threads have come to the next meeting.
      if (!alone_here) std::memcpy(data + done, total, piece);
    }
  }

  at::Tensor all_gather(const at::Tensor& shard) override {
    at::Tensor part = shard.contiguous();
    check(part, "all_gather");
    MAGISTER_CHECK(part.dim() > 0, ExitCode::kInternal,
                   "all_gather of a scalar (it has no rows to put together); report this");
    if (tp_size() == 1) return part;
    auto shape = part.sizes().vec();
    shape[0] *= tp_size();
    at::Tensor out = at::empty(shape, part.options());
    auto* to = static_cast<std::byte*>(out.data_ptr());
    const std::size_t bytes = part.nbytes();
    auto* from = static_cast<std::byte*>(const_cast<void*>(part.const_data_ptr()));  // read only
    for (std::size_t done = 0; done < bytes; done += kPieceBytes) {
      const std::size_t piece = std::min(kPieceBytes, bytes - done);
      meet({from + done, piece, part.scalar_type(), "all_gather"}, [&] { shards_->gather({0, piece}); });
      for (std::size_t j = 0; j < static_cast<std::size_t>(tp_size()); ++j) {
        std::memcpy(to + j * bytes + done, shards_->gathered.data() + j * piece, piece);
      }
    }
    return out;
  }

  at::Tensor reduce_scatter(const at::Tensor& tensor) override {
    const at::Tensor whole = tensor.contiguous();
    check(whole, "reduce_scatter");
    MAGISTER_CHECK(whole.dim() > 0 && whole.size(0) % tp_size() == 0, ExitCode::kInternal,
                   "reduce_scatter of {} rows over {} shards (they do not divide); report this",
                   whole.dim() > 0 ? whole.size(0) : 0, tp_size());
    if (tp_size() == 1) return whole.clone();
    auto shape = whole.sizes().vec();
    shape[0] /= tp_size();
    at::Tensor out = at::empty(shape, whole.options());
    auto* from = static_cast<std::byte*>(const_cast<void*>(whole.const_data_ptr()));  // read only
    const std::size_t block = out.nbytes(), item = whole.element_size();
    const std::size_t step = std::max<std::size_t>(kPieceBytes / static_cast<std::size_t>(tp_size()) / 64, 1) * 64;
    for (std::size_t done = 0; done < block; done += step) {
      std::vector<ByteRange> shares;
      shares.reserve(static_cast<std::size_t>(tp_size()));
      for (std::size_t j = 0; j < static_cast<std::size_t>(tp_size()); ++j) {
        shares.push_back({j * block + done, j * block + std::min(block, done + step)});
      }
      meet({from, whole.nbytes(), whole.scalar_type(), "reduce_scatter"}, [&] {
        if (shards_->spans_ranks()) shards_->exchange(shares);
      });
      const ByteRange own = shares[static_cast<std::size_t>(tp_rank())];
      add_in_shard_order(whole.scalar_type(), contributions_to(shares), static_cast<std::byte*>(out.data_ptr()) + done,
                         own.size() / item);
      shards_->rendezvous.meet();  // the others read this shard's tensor, which its owner may change afterwards
    }
    return out;
  }

  void broadcast(at::Tensor& tensor, int root) override {
    check(tensor, "broadcast");
    MAGISTER_CHECK(root >= 0 && root < tp_size(), ExitCode::kInternal,
                   "broadcast from shard {} of {} (there is none); report this", root, tp_size());
    if (tp_size() == 1 || tensor.nbytes() == 0) return;
    const int root_rank = root / shards_->num_threads;
    const bool from_here = shards_->ranks.rank() == root_rank;
    const auto root_thread = static_cast<std::size_t>(root % shards_->num_threads);
    auto* data = static_cast<std::byte*>(tensor.data_ptr());
    const std::size_t bytes = tensor.nbytes();
    // On the root's rank the message is the root's tensor; on other ranks it is received into the first shard's tensor.
    const std::size_t source = from_here ? root_thread : 0;
    meet({data, bytes, tensor.scalar_type(), "broadcast"},
         [&] { shards_->ranks.broadcast(shards_->parts[source].data, bytes, root_rank); });
    if (thread_ != source) std::memcpy(data, shards_->parts[source].data, bytes);
    shards_->rendezvous.meet();
  }

  void barrier() override {
    shards_->rendezvous.meet([&] { shards_->ranks.barrier(); });
  }

 private:
  void check(const at::Tensor& tensor, std::string_view operation) const {
    MAGISTER_CHECK(tensor.is_contiguous() && tensor.device().is_cpu(), ExitCode::kInternal,
                   "{} of a tensor on {} that is{} contiguous (a CPU group takes contiguous tensors in main memory); "
                   "report this",
                   operation, tensor.device().str(), tensor.is_contiguous() ? "" : " not");
  }

  template <typename Action>
  void meet(Contribution mine, const Action& last_one) {
    shards_->parts[thread_] = mine;
    shards_->rendezvous.meet([&] {
      shards_->check_agreement();
      last_one();
    });
  }

  void sum_small(at::Tensor& tensor, std::byte* data, std::size_t bytes) {
    meet({data, bytes, tensor.scalar_type(), "all_reduce_sum"}, [&] { shards_->gather({0, bytes}); });
    std::vector<const std::byte*> contributions;
    contributions.reserve(static_cast<std::size_t>(tp_size()));
    for (std::size_t j = 0; j < static_cast<std::size_t>(tp_size()); ++j) {
      contributions.push_back(shards_->gathered.data() + j * bytes);
    }
    add_in_shard_order(tensor.scalar_type(), contributions, data, bytes / tensor.element_size());
  }

  // Where the contributions of all shards to this shard's share are: in `gathered` after exchange(), or in the shards'
  // own tensors.
  std::vector<const std::byte*> contributions_to(const std::vector<ByteRange>& shares) const {
    std::vector<const std::byte*> all;
    if (!shards_->spans_ranks()) {
      const std::size_t begin = shares[static_cast<std::size_t>(tp_rank())].begin;
      for (const Contribution& part : shards_->parts) all.push_back(part.data + begin);
      return all;
    }
    const std::size_t first = static_cast<std::size_t>(tp_rank()) - thread_;
    std::size_t rank_bytes = 0, before = 0;
    for (std::size_t t = 0; t < shards_->parts.size(); ++t) {
      if (t == thread_) before = rank_bytes;
      rank_bytes += shares[first + t].size();
    }
    for (std::size_t j = 0; j < shares.size(); ++j) all.push_back(shards_->gathered.data() + j * rank_bytes + before);
    return all;
  }

  std::shared_ptr<RankShards> shards_;
  std::size_t thread_;
};

std::vector<std::unique_ptr<ProcessGroup>> make_groups(Communicator ranks, int num_threads) {
  MAGISTER_CHECK(num_threads >= 1, ExitCode::kInternal,
                 "a group of {} shards per rank (no thread would compute); report this", num_threads);
  const auto shards = std::make_shared<RankShards>(std::move(ranks), num_threads);
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  groups.reserve(static_cast<std::size_t>(num_threads));
  for (int i = 0; i < num_threads; ++i) groups.push_back(std::make_unique<CpuProcessGroup>(shards, i));
  return groups;
}

}  // namespace

std::vector<std::unique_ptr<ProcessGroup>> make_cpu_process_groups(const Communicator& members, int shards_per_rank) {
  if (members.size() == 1) return make_groups({}, shards_per_rank);
  int level = MPI_THREAD_SINGLE;
  MAGISTER_CHECK_MPI(MPI_Query_thread(&level));
  MAGISTER_CHECK(
      shards_per_rank == 1 || level >= MPI_THREAD_SERIALIZED, ExitCode::kConfig,
      "{} shards per rank over {} ranks, but this MPI lets only one thread communicate (its shards are threads); set "
      "layout.shards_per_rank, on GPUs layout.devices_per_rank, to 1 or use an MPI with thread support",
      shards_per_rank, members.size());
  return make_groups(members.duplicate(), shards_per_rank);
}

std::unique_ptr<ProcessGroup> make_single_process_group() { return std::move(make_groups({}, 1).front()); }

std::vector<std::unique_ptr<ProcessGroup>> make_thread_process_groups(int num_shards) {
  return make_groups({}, num_shards);
}

std::unique_ptr<ProcessGroup> make_mpi_process_group(const Communicator& members) {
  return std::move(make_cpu_process_groups(members, 1).front());
}

}  // namespace magister
