// One mutex guards everything: a sample takes less than a millisecond, and the other threads call rarely.
#include "magister/monitor/monitor.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <thread>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "magister/monitor/host.h"
#include "magister/monitor/nvml.h"
#include "magister/monitor/prometheus.h"
#include "magister/monitor/rank_states.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;
using SteadyClock = std::chrono::steady_clock;

constexpr double kMostLoad = 1e-3;            // of a core
constexpr double kLongestInterval = 60;       // s
constexpr double kTimeBeforeSlowing = 30;     // s: the first samples load libraries
constexpr std::uint64_t kSamplesPerSlow = 6;  // the rates of PCIe, for which NVML waits

double seconds_since_epoch() {
  return 1e-6 * static_cast<double>(std::chrono::duration_cast<std::chrono::microseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Json values_of(const Readings& readings) {
  Json out = Json::object();
  for (const auto& [name, value] : readings) out[name] = value;
  return out;
}

}  // namespace

struct Monitor::Window {
  std::string task;
  std::function<std::string()> place;
  std::uint64_t samples = 0;
  Aggregates values{rank_metrics()};
  std::vector<Aggregates> gpus;  // by index in State::gpus
};

struct Monitor::State {
  // A GPU and what was read from it.
  struct GpuWatch {
    WatchedGpu named;
    std::optional<NvmlGpu> gpu;  // none: NVML does not know it
    Readings now;
    Aggregates minute{gpu_metrics()};
    Json last_minute = Json::object();
  };

  explicit State(MonitorSettings given) : settings(std::move(given)), interval(settings.seconds) { open_gpus(); }

  MonitorSettings settings;
  double interval;
  std::mutex mutex;
  std::condition_variable wake;
  bool stop = false, ended = false, file_warned = false, nvml_reported = false, reported = false;
  std::string fatal;  // the first fatal fault of a GPU
  const SteadyClock::time_point begin = SteadyClock::now();
  double last_series = 0, cpu_seconds = 0;
  std::uint64_t samples = 0;
  HostReader host;
  std::unique_ptr<Nvml> nvml;  // null: this rank has no GPU
  Readings now;
  Aggregates minute{rank_metrics()};
  Json last_minute = Json::object(), progress = Json::object();
  std::vector<GpuWatch> gpus;
  std::vector<Window*> windows;  // that are not over, in the order of their beginnings
  std::thread thread;

  double elapsed() const { return std::chrono::duration<double>(SteadyClock::now() - begin).count(); }

  // Logs faults; the monitor's thread handles the first fatal one, whoever took the sample.
  void report(const std::vector<NvmlGpu::Fault>& faults) {
    for (const NvmlGpu::Fault& fault : faults) {
      if (!fault.fatal) log_local(LogLevel::kWarning, "{}", fault.message);
      if (fault.fatal && fatal.empty()) fatal = fault.message;
    }
    if (!fatal.empty()) wake.notify_all();
  }

  void sample() {
    const double cpu_before = thread_cpu_seconds();
    now = host.read();
    now.emplace_back("monitor_cpu_seconds_total", cpu_seconds);
    const double seconds = elapsed();
    minute.add(now, seconds);
    std::vector<NvmlGpu::Fault> faults;
    for (GpuWatch& one : gpus) {
      if (!one.gpu) continue;
      one.now = one.gpu->read(faults, samples % kSamplesPerSlow == 0);
      one.minute.add(one.now, seconds);
    }
    for (Window* const window : windows) add_to(*window, seconds);
    ++samples;
    end_minute(seconds);
    write();
    cpu_seconds += thread_cpu_seconds() - cpu_before;
    if (seconds > kTimeBeforeSlowing && cpu_seconds > kMostLoad * seconds)
      interval = std::min(2 * interval, std::max(kLongestInterval, settings.seconds));
    report(faults);
  }

  void add_to(Window& window, double seconds) const {
    window.values.add(now, seconds);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (gpus[i].gpu) window.gpus[i].add(gpus[i].now, seconds);
    }
    ++window.samples;
  }

  // The means of the last series_seconds; the first ones are those since the beginning.
  void end_minute(double seconds) {
    const bool over = seconds - last_series >= settings.series_seconds;
    if (over || last_minute.empty()) last_minute = minute.means();
    for (GpuWatch& one : gpus) {
      if (over || one.last_minute.empty()) one.last_minute = one.minute.means();
      if (over) restart(one.minute, gpu_metrics(), one.now, seconds);
    }
    if (!over) return;
    const double passed = seconds - last_series;
    restart(minute, rank_metrics(), now, seconds);
    last_series = seconds;
    if (settings.on_series) settings.on_series(series(passed));
  }

  static void restart(Aggregates& aggregates, std::span<const Metric> metrics, const Readings& now, double seconds) {
    aggregates = Aggregates(metrics);
    aggregates.begin_at(now, seconds);
  }

  Json state() const {
    const Window* const last = windows.empty() ? nullptr : windows.back();
    Json out = {{"schema", 1},
                {"start", settings.start},
                {"rank", settings.rank},
                {"ranks", settings.ranks},
                {"host", host_name()},
                {"pid", ::getpid()},
                {"time", seconds_since_epoch()},
                {"interval_seconds", interval},
                {"ended", ended},
                {"task", last != nullptr ? last->task : ""},
                {"place", last != nullptr && last->place ? last->place() : ""},
                {"nvml", nvml ? nvml->problem() : std::string()},
                {"values", values_of(now)},
                {"minute", last_minute},
                {"gpus", Json::array()}};
    for (const GpuWatch& one : gpus) {
      out["gpus"].push_back({{"index", one.named.index},
                             {"uuid", one.named.uuid},
                             {"pci", one.named.pci},
                             {"name", one.named.name},
                             {"values", values_of(one.now)},
                             {"minute", one.last_minute}});
    }
    if (!progress.empty()) out["progress"] = progress;
    return out;
  }

  void write() {
    const std::string text = state().dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    bool written = replace_small_file(rank_state_path(settings.folder, settings.rank), text);
    if (written && !settings.textfile.empty()) {
      std::vector<nlohmann::json> here = read_rank_states(settings.folder, settings.start);
      std::erase_if(here, [&](const auto& one) { return state_text(one, "host") != settings.textfile_host; });
      written = replace_small_file(settings.textfile, prometheus_text(settings.run, here));
    }
    if (written || std::exchange(file_warned, true)) return;
    log_local(LogLevel::kWarning,
              "{}: the state of the rank cannot be written: {} (`magister top` shows old values; results are not "
              "affected); free space or make it writable",
              printable(settings.folder), std::strerror(errno));
  }

  Json series(double seconds) const {
    Json out = {{"seconds", seconds}, {"ranks", Json::array()}};
    for (const nlohmann::json& state : read_rank_states(settings.folder, settings.start)) {
      Json gpu_means = Json::array();
      for (const auto& gpu : state_member(state, "gpus"))
        gpu_means.push_back({{"uuid", state_text(gpu, "uuid")}, {"values", state_member(gpu, "minute")}});
      out["ranks"].push_back({{"rank", state_member(state, "rank")},
                              {"host", state_text(state, "host")},
                              {"values", state_member(state, "minute")},
                              {"gpus", gpu_means}});
    }
    return out;
  }

  void run() {
    std::unique_lock lock(mutex);
    while (!stop) {
      sample();
      wake.wait_for(lock, std::chrono::duration<double>(interval),
                    [&] { return stop || (!fatal.empty() && !reported); });
      if (fatal.empty() || reported || !settings.on_fault) continue;
      reported = true;
      lock.unlock();
      settings.on_fault(fatal);
      lock.lock();
    }
  }

  void open_gpus() {
    if (settings.gpus.empty()) return;
    nvml = std::make_unique<Nvml>();
    for (const WatchedGpu& one : settings.gpus) {
      GpuWatch watch{one, std::nullopt, {}, Aggregates(gpu_metrics()), Json::object()};
      std::string why;
      watch.gpu = nvml->open(one.uuid, why);
      if (!watch.gpu && !std::exchange(nvml_reported, true)) {
        log_info("GPUs are not watched: {} (the run goes on without their use, temperature and energy)", why);
      }
      gpus.push_back(std::move(watch));
    }
  }
};

Monitor::Monitor(MonitorSettings settings) : state_(std::make_unique<State>(std::move(settings))) {
  std::error_code error;
  std::filesystem::create_directories(state_->settings.folder, error);  // a failure shows at the first state
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Monitor::~Monitor() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  state_->thread.join();
  state_->ended = true;
  state_->sample();
}

void Monitor::show_progress(const nlohmann::ordered_json& progress) {
  const std::lock_guard lock(state_->mutex);
  state_->progress = progress;
}

Monitor::Watch::Watch(Monitor* monitor, const std::string& task, std::function<std::string()> place)
    : monitor_(monitor) {
  if (monitor_ == nullptr) return;
  State& state = *monitor_->state_;
  const std::lock_guard lock(state.mutex);
  window_ = std::make_unique<Window>(Window{.task = task, .place = std::move(place), .gpus = {}});
  window_->gpus.assign(state.gpus.size(), Aggregates(gpu_metrics()));
  state.windows.push_back(window_.get());
  state.sample();
}

Monitor::Watch::~Watch() {
  if (monitor_ == nullptr) return;
  State& state = *monitor_->state_;
  const std::lock_guard lock(state.mutex);
  std::erase(state.windows, window_.get());
  state.progress = Json::object();
}

nlohmann::ordered_json Monitor::Watch::summary() const {
  if (monitor_ == nullptr) return nullptr;
  State& state = *monitor_->state_;
  const std::lock_guard lock(state.mutex);
  state.sample();
  Json out = {{"samples", window_->samples}, {"values", window_->values.summary()}, {"gpus", Json::array()}};
  for (std::size_t i = 0; i < state.gpus.size(); ++i) {
    const State::GpuWatch& one = state.gpus[i];
    out["gpus"].push_back({{"index", one.named.index},
                           {"uuid", one.named.uuid},
                           {"whole_uuid", one.gpu ? one.gpu->whole_uuid() : one.named.uuid},
                           {"values", window_->gpus[i].summary()}});
  }
  return out;
}

}  // namespace magister
