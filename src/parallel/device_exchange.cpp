// The exchange of ranks whose host computes in place of their GPUs, and the choice between the two kinds.
#include "magister/parallel/device_exchange.h"

#include <cstdlib>
#include <string_view>
#include <vector>

#include "magister/core/error.h"
#include "magister/parallel/exchange.h"
#include "magister/parallel/layout.h"
#include "parallel/device_exchange_nccl.h"

namespace magister {
namespace {

constexpr int kDeviceTag = 74;

class HostExchange final : public DeviceExchange {
 public:
  explicit HostExchange(const Communicator& members) : members_(members.duplicate()) {}

  gpu::Queue queue() const override { return {}; }
  void follow_default() override {}
  void pass(std::span<const DeviceMessage> messages) override {
    std::vector<Transfer> transfers;
    for (const DeviceMessage& message : messages) {
      MAGISTER_ASSERT(message.numbers.is_cpu() && message.numbers.is_contiguous());
      transfers.push_back({message.numbers.data_ptr(), message.numbers.nbytes(), message.peer, message.sends});
    }
    exchange(members_, transfers, kDeviceTag);
  }
  std::uint64_t mark() override { return ++marks_; }
  bool reached(std::uint64_t mark) override { return mark <= marks_; }
  void wait() override {}

 private:
  Communicator members_;
  std::uint64_t marks_ = 0;
};

}  // namespace

bool devices_may_exchange() {
  const char* const text = std::getenv("MAGISTER_SUMS_BETWEEN_GPUS");
  return (text == nullptr || std::string_view(text) != "0") && !shares_gpus();
}

std::unique_ptr<DeviceExchange> make_device_exchange(const Communicator& members, const gpu::Queue& queue, bool fast) {
  if (queue.on_host()) return std::make_unique<HostExchange>(members);
  return make_nccl_exchange(members, queue.device, fast);
}

}  // namespace magister
