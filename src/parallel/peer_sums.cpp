// How the shards of a group open each other's memory, and what happens when one leaves. The kernel is in
// peer_sum_kernel.h.
#include "magister/parallel/peer_sums.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "magister/parallel/process_group.h"
#include "parallel/gpu/peer_sum_kernel.h"
#include "parallel/patience.h"
#include "parallel/peer_memory.h"

namespace magister {
namespace {

using Numbers = std::vector<std::int64_t>;

// Eight launches: 256 rows of 8,192. `fast` groups leave sums of more than one launch to NCCL, whose rings transfer
// fewer bytes and add in another order.
constexpr std::int64_t kMostNumbers = 8 * gpu::kPeerSumNumbers;

// Number of elements of the largest sum in the test.
std::int64_t tried_numbers(const gpu::Queue& queue) {
  return queue.on_host() ? 2 * gpu::kPeerBlockNumbers : gpu::kPeerSumNumbers;
}

// Returns the problem of the first shard that has one, or "". Collective over the group.
std::string agreed_problem(ProcessGroup& group, const std::string& mine) {
  std::array<char, 400> text{};
  mine.copy(text.data(), text.size() - 1);
  Numbers words(text.size() / sizeof(std::int64_t));
  std::memcpy(words.data(), text.data(), text.size());
  for (const Numbers& theirs : group.gather_numbers(words)) {
    if (theirs[0] != 0) return reinterpret_cast<const char*>(theirs.data());
  }
  return "";
}

std::int64_t number_of(std::string_view text) { return static_cast<std::int64_t>(std::hash<std::string_view>()(text)); }

// Identifies the running kernel, which containers of one host share, whatever their host names.
std::int64_t this_host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return number_of(std::getline(file, id) ? id : host_name());
}

std::int64_t this_process() {
  static const std::int64_t number = [] {
    std::random_device device;
    return static_cast<std::int64_t>(device()) << 32 | device();
  }();
  return number;
}

bool wanted() {
  const char* const text = std::getenv("MAGISTER_PEER_SUMS");
  return text == nullptr || std::string_view(text) != "0";
}

// Numbers for the test: their sums are rounded, so another order of additions gives other bits.
float known_number(int shard, std::int64_t index) {
  return static_cast<float>(index % 1021 - 510) * (shard % 2 == 0 ? 1.0f : 0.3f) + 1.0f / static_cast<float>(shard + 3);
}

}  // namespace

// State that the shards of one process share; the last owner frees it.
struct PeerSums::Shared {
  explicit Shared(const gpu::Queue& queue, std::size_t shards)
      : flags(peer_memory::make_flags(queue, sizeof(gpu::PeerFlags))), memory(shards) {}
  // A kernel of another process may still write to memory that it opened; such memory is left to the driver.
  ~Shared() {
    if (!exported || may_free) return;
    for (peer_memory::Bytes& bytes : memory) static_cast<void>(new peer_memory::Bytes(std::move(bytes)));
  }
  gpu::PeerFlags& all_flags() const { return *reinterpret_cast<gpu::PeerFlags*>(flags.get()); }

  peer_memory::Bytes flags;
  std::vector<peer_memory::Bytes> memory;  // by shard; each shard sets its own
  std::atomic<bool> exported{false}, may_free{false};
};

struct PeerSums::Peers {
  gpu::Queue queue;
  int own = 0, shards = 0;
  bool fast = false;
  std::array<float*, gpu::kMostPeers> memory{};
  std::vector<peer_memory::Bytes> opened;
  std::chrono::nanoseconds patience = group_patience();
};

PeerSums::PeerSums(std::shared_ptr<Shared> shared, const gpu::Queue& queue, int own, int shards, bool fast)
    : shared_(std::move(shared)), peers_(std::make_unique<Peers>()) {
  peers_->queue = queue;
  peers_->own = own;
  peers_->shards = shards;
  peers_->fast = fast;
}

PeerSums::~PeerSums() {
  __atomic_store_n(&shared_->all_flags().has_left[peers_->own], 1u, __ATOMIC_RELEASE);
  constexpr std::chrono::seconds kMost{10};  // waiting kernels end at once after has_left
  if (!peer_memory::wait_until_idle(peers_->queue, kMost)) {
    static_cast<void>(new std::shared_ptr<Shared>(shared_));  // the device still uses the memory, so it is not freed
    static_cast<void>(peers_.release());
  }
}

std::uint64_t PeerSums::memory_bytes(int shards) {
  if (shards < 2 || shards > gpu::kMostPeers) return 0;
  return static_cast<std::uint64_t>(gpu::PeerMemoryLayout{shards}.words()) * sizeof(std::uint32_t);
}

bool PeerSums::takes(std::int64_t count) const { return count <= (peers_->fast ? gpu::kPeerSumNumbers : kMostNumbers); }

void PeerSums::queue_sum(float* numbers, std::int64_t count, const gpu::Queue& queue) const {
  MAGISTER_ASSERT(takes(count) && reinterpret_cast<std::uintptr_t>(numbers) % 16 == 0);
  gpu::PeerSum kernel{};
  std::copy(peers_->memory.begin(), peers_->memory.end(), kernel.memory);
  kernel.flags = &shared_->all_flags();
  kernel.patience = static_cast<std::uint64_t>(peers_->patience.count());
  kernel.layout = {peers_->shards};
  kernel.own = peers_->own;
  for (std::int64_t done = 0; done < count; done += gpu::kPeerSumNumbers) {
    kernel.numbers = numbers + done;
    kernel.count = std::min(gpu::kPeerSumNumbers, count - done);
    start(kernel, queue);
  }
  if (queue.on_host()) gpu::call_library([this] { check(); }, queue);
}

void PeerSums::check() const {
  if (__atomic_load_n(&shared_->all_flags().gave_up[peers_->own], __ATOMIC_ACQUIRE) != 0) throw ShardAbandoned();
}

void PeerSums::close() {
  peer_memory::wait_until_idle(peers_->queue, std::chrono::duration_cast<std::chrono::milliseconds>(peers_->patience));
  peers_->opened.clear();
}

void PeerSums::free() { shared_->may_free = true; }

// Tests sums in both halves of the memory, by one block and by all. Throws Error if a sum is wrong. Collective over the
// group. place: device memory for tried_numbers() numbers.
void PeerSums::probe(ProcessGroup& group, std::byte* place) {
  const std::chrono::nanoseconds patience = std::exchange(peers_->patience, std::chrono::seconds(60));
  const gpu::Queue& queue = peers_->queue;
  const std::int64_t most = tried_numbers(queue);
  auto* const numbers = reinterpret_cast<float*>(place);
  std::int64_t wrong = 0;
  for (const std::int64_t count : {std::int64_t{5}, most, most - 3}) {
    std::vector<float> mine, sums, found(static_cast<std::size_t>(count));
    const std::size_t bytes = found.size() * sizeof(float);
    for (std::int64_t i = 0; i < count; ++i) {
      mine.push_back(known_number(group.tp_rank(), i));
      float sum = known_number(0, i);
      for (int shard = 1; shard < group.tp_size(); ++shard) sum += known_number(shard, i);
      sums.push_back(sum);
    }
    peer_memory::copy(queue, numbers, mine.data(), bytes);
    queue_sum(numbers, count, queue);
    peer_memory::copy(queue, found.data(), numbers, bytes);
    check();
    if (std::memcmp(found.data(), sums.data(), bytes) != 0) wrong = count;  // the others continue, and wait
  }
  MAGISTER_CHECK(wrong == 0, ExitCode::kInternal, "the sum of {} known numbers is wrong", wrong);
  peers_->patience = patience;
}

// The steps of make(), in which the shards meet until all have tested a sum.
struct PeerSums::Making {
  // Properties of a shard, in the order in which it sends them.
  struct Place {
    std::int64_t wanted, on_host, host, process, device, index;
    explicit Place(const Numbers& values)
        : wanted(values[0]),
          on_host(values[1]),
          host(values[2]),
          process(values[3]),
          device(values[4]),
          index(values[5]) {}
  };

  // The reason why these shards cannot use peer sums; "" if they can.
  std::string obstacle() const {
    if (places.size() > gpu::kMostPeers)
      return fmt::format("{} shards are more than {}", places.size(), gpu::kMostPeers);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const Place &one = places[i], &first = places.front();
      if (one.wanted == 0) return "MAGISTER_PEER_SUMS is 0";
      if (one.host != first.host) return "its shards are on several hosts";
      if (one.on_host != first.on_host) return "some of its shards are on GPUs and some are not";
      if (one.on_host != 0 && one.process != first.process) return "the host plays GPUs of several processes";
      for (std::size_t j = 0; j < i; ++j) {
        if (one.device == places[j].device && one.on_host == 0) return "two of its shards are on one GPU";
      }
    }
    return "";
  }

  ProcessGroup& group;
  const gpu::Queue& queue;
  std::size_t own, shards;
  std::vector<Place> places{};
  std::string problem{};  // problem of this shard that the others do not know yet
  std::shared_ptr<Shared> made{};
  std::shared_ptr<PeerSums> sums{};

  // Runs a step; an error is stored, and the other shards learn of it at the next meeting.
  void attempt(const std::function<void()>& step) {
    if (!problem.empty()) return;
    try {
      step();
    } catch (const std::exception& error) {
      problem = printable(error.what(), 300);
    }
  }
  bool here(std::size_t shard) const { return places[shard].process == places[own].process; }
  bool all_here() const {
    return std::all_of(places.begin(), places.end(),
                       [&](const Place& one) { return one.process == places[own].process; });
  }

  void find_places() {
    std::int64_t device = 0;
    attempt([&] { device = peer_memory::number_of(queue); });
    for (const Numbers& values : group.gather_numbers(
             {wanted() ? 1 : 0, queue.on_host() ? 1 : 0, this_host(), this_process(), device, queue.device}))
      places.emplace_back(values);
    problem = agreed_problem(group, problem.empty() ? obstacle() : problem);
  }

  // The first shard of a process allocates the state that the process's shards share, and holds it until all have met
  // again.
  void share() {
    std::size_t first = 0;
    while (!here(first)) ++first;
    if (first == own) attempt([&] { made = std::make_shared<Shared>(queue, shards); });
    const std::int64_t address = group.gather_numbers({reinterpret_cast<std::intptr_t>(&made)})[first][0];
    const auto shared = *reinterpret_cast<const std::shared_ptr<Shared>*>(static_cast<std::intptr_t>(address));
    attempt([&] {
      MAGISTER_CHECK(shared != nullptr, ExitCode::kInternal, "there is no memory on the host that GPUs see");
      sums.reset(new PeerSums(shared, queue, group.tp_rank(), group.tp_size(), group.backend() == "nccl, fast"));
      if (!all_here()) shared->exported = true;
      shared->memory[own] = peer_memory::make(queue, static_cast<std::size_t>(memory_bytes(group.tp_size())));
    });
  }

  void find_memory() {
    Numbers mine(1 + std::tuple_size_v<peer_memory::Handle>);
    attempt([&] {
      const peer_memory::Bytes& memory = sums->shared_->memory[own];
      if (!all_here()) {
        const peer_memory::Handle handle = peer_memory::handle_of(queue.device, memory);
        std::copy(handle.begin(), handle.end(), mine.begin() + 1);
      }
      mine[0] = reinterpret_cast<std::intptr_t>(memory.get());
    });
    const std::vector<Numbers> all = group.gather_numbers(mine);
    for (std::size_t shard = 0; shard < shards; ++shard) attempt([&] { find_memory_of(shard, all[shard]); });
  }
  void find_memory_of(std::size_t shard, const Numbers& values) {
    MAGISTER_CHECK(values[0] != 0, ExitCode::kInternal, "shard {} has no memory for it", shard);
    auto* memory = reinterpret_cast<std::byte*>(static_cast<std::intptr_t>(values[0]));
    if (here(shard)) {
      if (shard != own) peer_memory::reach(queue, static_cast<int>(places[shard].index));
    } else {
      peer_memory::Handle handle;
      std::copy(values.begin() + 1, values.end(), handle.begin());
      memory = sums->peers_->opened.emplace_back(peer_memory::open(queue.device, handle)).get();
    }
    sums->peers_->memory[shard] = reinterpret_cast<float*>(memory);
  }
  // Releases everything if the sums do not work for one shard or for all.
  void give_back() {
    if (sums != nullptr) sums->close();
    group.gather_numbers({0});
    if (sums != nullptr) sums->free();
  }
};

std::shared_ptr<PeerSums> PeerSums::make(ProcessGroup& group, const gpu::Queue& queue) {
  if (group.tp_size() == 1) return nullptr;
  Making making{group, queue, static_cast<std::size_t>(group.tp_rank()), static_cast<std::size_t>(group.tp_size())};
  making.find_places();
  if (making.problem.empty()) {
    making.share();
    making.find_memory();
    peer_memory::Bytes place;
    making.attempt(
        [&] { place = peer_memory::make(queue, static_cast<std::size_t>(tried_numbers(queue)) * sizeof(float)); });
    // All shards have allocated their memory before the test, because a waiting kernel would block other allocations.
    making.problem = agreed_problem(group, making.problem);
    const bool tried = making.problem.empty();
    if (tried) making.attempt([&] { making.sums->probe(group, place.get()); });
    if (tried) making.problem = agreed_problem(group, making.problem);
    if (making.problem.empty()) return making.sums;
    making.give_back();
    if (tried && group.tp_rank() == 0 && !queue.on_host())
      log_warning(
          "sums in kernels failed their test, and the sums used instead may add in another order (the last bits of "
          "texts may differ from those of runs with sums in kernels)");
  }
  if (group.tp_rank() == 0 && !queue.on_host())
    log_info("the sums of decoding are made by {}, not by kernels of the GPUs: {}", group.backend(), making.problem);
  return nullptr;
}

}  // namespace magister
