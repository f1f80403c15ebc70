#include "serve/devices.h"

namespace magister {
namespace {

nlohmann::ordered_json json_of(const Readings& readings) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : readings) out[name] = value;
  return out;
}

}  // namespace

Devices::Devices() {
  for (const Nvml::Named& named : nvml_.gpus()) {
    std::string why;
    if (std::optional<NvmlGpu> gpu = nvml_.open(named.uuid, why)) gpus_.push_back({named.name, std::move(*gpu)});
  }
}

nlohmann::ordered_json Devices::gpus() {
  const std::lock_guard lock(mutex_);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  std::vector<NvmlGpu::Fault> faults;  // a job's own monitor acts on them
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const Readings now = gpus_[i].reader.read(faults, false);
    all.push_back({{"index", i}, {"uuid", gpus_[i].reader.uuid()}, {"name", gpus_[i].name}, {"values", json_of(now)}});
  }
  return all;
}

nlohmann::ordered_json Devices::host() {
  const std::lock_guard lock(mutex_);
  return json_of(host_.read());
}

}  // namespace magister
