// Bounds of the machine, so that a run takes longer: measured runs took 1.1 to 2 times as long.
#include "magister/run/time_estimate.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

#include "magister/device/upload.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMeasured = 0.15;  // seconds of each figure

// Runs in a second of what every thread of the pool makes for itself, all at once.
double runs_a_second(ThreadPool& pool, const std::function<std::function<void()>()>& make) {
  std::vector<double> rates(static_cast<std::size_t>(pool.num_threads()));
  pool.run(pool.num_threads(), [&](std::int64_t tile, int) {
    const std::function<void()> body = make();
    body();  // pages and caches are warm
    const auto begin = Clock::now();
    double runs = 0, seconds = 0;
    do {
      body();
      ++runs;
      seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    } while (seconds < kMeasured);
    rates[static_cast<std::size_t>(tile)] = runs / seconds;
  });
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

}  // namespace

double flops_of(const ModelWork& work, double parameters) {
  return parameters * (2 * (work.read + work.written) + 6 * work.learnt);
}

namespace {

Speed measure(const gpu::Queue& queue) {
  const bool host = queue.on_host();
  const std::int64_t n = host ? 384 : 4096, floats = host ? std::int64_t{16} << 20 : std::int64_t{256} << 20;
  const auto options = at::TensorOptions().dtype(host ? at::kFloat : at::kBFloat16).device(device_of(queue));
  ThreadPool pool(host ? usable_cores() : 1);
  const auto finished = [](const at::Tensor& value) { value.item<float>(); };  // waits for a GPU
  Speed speed;
  const double products = runs_a_second(pool, [&] {
    return [a_NN = at::ones({n, n}, options), b_NN = at::ones({n, n}, options), finished] {
      finished(at::mm(a_NN, b_NN).select(0, 0).select(0, 0));
    };
  });
  const double reads = runs_a_second(
      pool, [&] { return [values_N = at::ones({floats}, options), finished] { finished(at::sum(values_N)); }; });
  const double edge = static_cast<double>(n);
  speed.flops = products * 2 * edge * edge * edge;
  speed.bytes_per_second = reads * static_cast<double>(floats) * (host ? 4 : 2);
  return speed;
}

}  // namespace

Speed measured_speed(const gpu::Queue& queue) {
  static std::map<int, Speed> by_device;  // a plan may have thousands of tasks
  const auto [found, is_new] = by_device.try_emplace(queue.device);
  if (is_new) {
    try {
      found->second = measure(queue);
    } catch (const c10::OutOfMemoryError&) {  // an estimate is no reason to fail
    }
  }
  return found->second;
}

double seconds_of(const ModelWork& work, double parameters, double weight_bytes, const Speed& speed, double devices) {
  const ModelWork whole{work.read, 0, work.learnt, 1};
  const double steps = work.written / std::max(work.at_once, 1.0);
  const double written =
      std::max(2 * parameters * work.written / speed.flops, steps * weight_bytes / speed.bytes_per_second);
  return (flops_of(whole, parameters) / speed.flops + written) / devices;
}

}  // namespace magister
