// See nvml.h. NVML gives percent, mW, mJ, MHz and KB; everything leaves this file in base units.
#include "magister/monitor/nvml.h"

#include <algorithm>
#include <array>

#include "magister/core/error.h"
#include "monitor/nvml_library.h"

namespace magister {
namespace {

// Xid errors that a program causes on its own (a faulty kernel, an invalid address): the program that caused one gets
// the error from CUDA, and others on the same GPU go on. 63 only records that a row of memory was replaced.
// Source: NVIDIA, XID Errors.
bool is_harmless_to_others(unsigned long long xid) {
  constexpr std::array kOfPrograms{13ULL, 31ULL, 43ULL, 45ULL, 63ULL, 68ULL, 69ULL};
  return std::find(kOfPrograms.begin(), kOfPrograms.end(), xid) != kOfPrograms.end();
}

// Calls a function of NVML that gives one number; a null function, or one that fails, gives nothing.
template <typename Number, typename... Parameters, typename... Arguments>
std::optional<double> ask(int (*function)(NvmlDevice, Parameters...), NvmlDevice device, double unit,
                          Arguments... arguments) {
  Number value = 0;
  if (function == nullptr || function(device, arguments..., &value) != kNvmlSuccess) return std::nullopt;
  return unit * static_cast<double>(value);
}

void add_reading(Readings& out, const char* name, std::optional<double> value) {
  if (value) out.emplace_back(name, *value);
}

}  // namespace

struct NvmlGpu::EventSet {
  std::shared_ptr<NvmlLibrary> library;
  NvmlEventSet set = nullptr;
  EventSet(std::shared_ptr<NvmlLibrary> nvml, NvmlDevice device) : library(std::move(nvml)) {
    if (library->make_events == nullptr || library->register_events == nullptr || library->wait_for_event == nullptr ||
        library->free_events == nullptr || library->make_events(&set) != kNvmlSuccess) {
      set = nullptr;
      return;
    }
    // A driver that knows only one of the two kinds refuses both together.
    if (library->register_events(device, kNvmlEventXid | kNvmlEventDoubleBitEcc, set) != kNvmlSuccess)
      library->register_events(device, kNvmlEventXid, set);
  }
  ~EventSet() {
    if (set != nullptr) library->free_events(set);
  }
  EventSet(const EventSet&) = delete;
  EventSet& operator=(const EventSet&) = delete;
};

NvmlGpu::NvmlGpu(std::shared_ptr<NvmlLibrary> library, std::string uuid)
    : library_(std::move(library)), uuid_(std::move(uuid)), whole_uuid_(uuid_) {}

void NvmlGpu::read_memory(Readings& out) {
  NvmlMemory memory;
  NvmlUtilization use;
  if (library_->utilization != nullptr && library_->utilization(device_, &use) == kNvmlSuccess) {
    out.emplace_back("utilization_ratio", use.gpu / 100.0);
    out.emplace_back("memory_busy_ratio", use.memory / 100.0);
  }
  const int code = library_->memory(device_, &memory);
  lost_ = code == kNvmlGpuIsLost;
  if (code != kNvmlSuccess) return;
  out.emplace_back("memory_used_bytes", static_cast<double>(memory.used));
  out.emplace_back("memory_total_bytes", static_cast<double>(memory.total));
}

void NvmlGpu::read_power_and_clocks(Readings& out) {
  add_reading(out, "temperature_celsius", ask<unsigned>(library_->temperature, whole_, 1, 0));
  add_reading(out, "temperature_limit_celsius", temperature_limit_);
  add_reading(out, "power_watts", ask<unsigned>(library_->power, whole_, 1e-3));
  add_reading(out, "power_limit_watts", ask<unsigned>(library_->power_limit, whole_, 1e-3));
  add_reading(out, "energy_joules_total", ask<unsigned long long>(library_->energy, whole_, 1e-3));
  add_reading(out, "sm_clock_hertz", ask<unsigned>(library_->clock, whole_, 1e6, kNvmlClockSm));
  add_reading(out, "memory_clock_hertz", ask<unsigned>(library_->clock, whole_, 1e6, kNvmlClockMemory));
  unsigned long long reasons = 0;
  if (library_->throttled == nullptr || library_->throttled(whole_, &reasons) != kNvmlSuccess) return;
  const auto flag = [&](unsigned long long bits) { return (reasons & bits) != 0 ? 1.0 : 0.0; };
  out.emplace_back("throttled_power_cap", flag(kNvmlSwPowerCap));
  out.emplace_back("throttled_thermal", flag(kNvmlSwThermal | kNvmlHwThermal));
  out.emplace_back("throttled_hardware", flag(kNvmlHwSlowdown | kNvmlHwThermal | kNvmlHwPowerBrake));
}

void NvmlGpu::read_links(Readings& out, bool slow) {
  unsigned count = 0;
  if (library_->processes != nullptr) {
    // With room for none, NVML says how many there are and returns "insufficient size".
    const int code = library_->processes(device_, &count, nullptr);
    if (code == kNvmlSuccess || code == 7) out.emplace_back("processes", count);
  }
  std::array<NvmlField, 2> fields;
  fields[0].field = kNvmlFieldNvlinkTransmit;
  fields[1].field = kNvmlFieldNvlinkReceive;
  for (NvmlField& one : fields) one.scope = kNvmlAllLinks;
  if (library_->fields != nullptr && library_->fields(whole_, 2, fields.data()) == kNvmlSuccess) {
    constexpr std::array kNames{"nvlink_transmit_bytes_total", "nvlink_receive_bytes_total"};
    for (std::size_t i = 0; i < 2; ++i) {
      if (fields[i].code == kNvmlSuccess) out.emplace_back(kNames[i], 1024.0 * static_cast<double>(fields[i].large));
    }
  }
  if (!slow) return;
  add_reading(out, "pcie_transmit_bytes_per_second", ask<unsigned>(library_->pcie, whole_, 1e3, 0));
  add_reading(out, "pcie_receive_bytes_per_second", ask<unsigned>(library_->pcie, whole_, 1e3, 1));
}

void NvmlGpu::warn_once(bool& warned, bool now, const std::string& message, std::vector<Fault>& faults) const {
  if (!now || warned) return;
  warned = true;
  faults.push_back({fmt::format("GPU {}: {}", uuid_, message), false});
}

void NvmlGpu::find_limits(const Readings& out, std::vector<Fault>& faults) {
  const double temperature = reading(out, "temperature_celsius").value_or(0);
  warn_once(warned_hot_, temperature_limit_ && temperature >= *temperature_limit_,
            fmt::format("{:.0f} degrees Celsius reach its limit of {:.0f} (the hardware lowers its clocks, and the run "
                        "becomes slower); look at the cooling of the host",
                        temperature, temperature_limit_.value_or(0)),
            faults);
  warn_once(warned_thermal_, reading(out, "throttled_thermal").value_or(0) > 0,
            "its clocks are lowered because it is too hot (the run becomes slower); look at the cooling of the host",
            faults);
  warn_once(warned_hardware_, reading(out, "throttled_hardware").value_or(0) > 0,
            "the hardware lowers its clocks (heat or the power supply; the run becomes slower); tell the administrator",
            faults);
}

void NvmlGpu::read_errors(Readings& out, std::vector<Fault>& faults) {
  constexpr const char* kBroken =
      "(what it computes can no longer be trusted); leave it out with "
      "CUDA_VISIBLE_DEVICES, tell the administrator, and run the same command again";
  NvmlEvent event;
  while (events_ && events_->set != nullptr && library_->wait_for_event(events_->set, &event, 0) == kNvmlSuccess) {
    if (event.type != kNvmlEventXid) continue;  // counters show memory errors below
    ++num_xid_;
    const bool harmless = is_harmless_to_others(event.data);
    faults.push_back({harmless ? fmt::format("GPU {}: Xid error {} (a program on it has failed, perhaps another one); "
                                             "if it was this one, CUDA's own message follows",
                                             uuid_, event.data)
                               : fmt::format("GPU {}: Xid error {} {}", uuid_, event.data, kBroken),
                      !harmless});
  }
  out.emplace_back("xid_errors_total", num_xid_);
  const auto ecc = ask<unsigned long long>(library_->ecc_errors, whole_, 1, kNvmlUncorrected, kNvmlVolatile);
  if (!ecc) return;
  out.emplace_back("ecc_uncorrected_errors_total", *ecc);
  if (first_ecc_ && *ecc > *first_ecc_) {
    faults.push_back(
        {fmt::format("GPU {}: {:.0f} new memory errors that were not corrected {}", uuid_, *ecc - *first_ecc_, kBroken),
         true});
  }
  first_ecc_ = ecc;
}

Readings NvmlGpu::read(std::vector<Fault>& faults, bool slow) {
  Readings out;
  const bool was_lost = lost_;
  read_memory(out);
  if (lost_ && !was_lost)
    faults.push_back(
        {fmt::format("GPU {}: {} (nothing can be computed on it); restart the host", uuid_, nvml_error(kNvmlGpuIsLost)),
         true});
  if (lost_) return out;
  read_power_and_clocks(out);
  find_limits(out, faults);
  read_errors(out, faults);
  read_links(out, slow);
  return out;
}

Nvml::Nvml() : library_(std::make_shared<NvmlLibrary>(problem_)) {}

std::vector<Nvml::Named> Nvml::gpus() const {
  std::vector<Named> all;
  unsigned count = 0;
  const bool can = problem_.empty() && library_->count != nullptr && library_->by_index != nullptr &&
                   library_->uuid != nullptr && library_->count(&count) == kNvmlSuccess;
  for (unsigned i = 0; can && i < count; ++i) {
    NvmlDevice device = nullptr;
    char uuid[96] = "", name[96] = "";
    if (library_->by_index(i, &device) != kNvmlSuccess || library_->uuid(device, uuid, sizeof uuid) != kNvmlSuccess)
      continue;
    if (library_->name != nullptr) library_->name(device, name, sizeof name);
    all.push_back({uuid, name});
  }
  return all;
}

std::optional<NvmlGpu> Nvml::open(const std::string& uuid, std::string& why) const {
  why = problem_;
  if (!problem_.empty()) return std::nullopt;
  NvmlGpu gpu(library_, uuid);
  // The CUDA runtime writes an instance of a divided GPU with the prefix of a whole GPU.
  const std::string instance = "MIG-" + uuid.substr(uuid.find('-') + 1);
  int code = library_->by_uuid(uuid.c_str(), &gpu.device_);
  if (code != kNvmlSuccess && library_->by_uuid(instance.c_str(), &gpu.device_) == kNvmlSuccess) code = kNvmlSuccess;
  if (code != kNvmlSuccess) {
    why = nvml_error(code);
    return std::nullopt;
  }
  unsigned is_instance = 0;
  gpu.whole_ = gpu.device_;
  if (library_->is_instance != nullptr && library_->whole_of_instance != nullptr &&
      library_->is_instance(gpu.device_, &is_instance) == kNvmlSuccess && is_instance != 0 &&
      library_->whole_of_instance(gpu.device_, &gpu.whole_) == kNvmlSuccess) {
    char text[96] = "";
    gpu.is_instance_ = true;
    if (library_->uuid != nullptr && library_->uuid(gpu.whole_, text, sizeof text) == kNvmlSuccess)
      gpu.whole_uuid_ = text;
  }
  gpu.temperature_limit_ = ask<unsigned>(library_->temperature_limit, gpu.whole_, 1, kNvmlThresholdSlowdown);
  gpu.events_ = std::make_shared<NvmlGpu::EventSet>(library_, gpu.whole_);
  return gpu;
}

}  // namespace magister
