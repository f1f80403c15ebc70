// The estimates are bounds of the machine, so a run takes longer: measured runs took 1.1 to 2 times as long.
#include "magister/run/time_estimate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <map>

#include "magister/device/upload.h"
#include "magister/parallel/thread_pool.h"
#include "magister/train/memory_ladder.h"

namespace magister {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMeasured = 0.15;  // seconds for each measurement

// The number of runs per second, summed over all threads of the pool, which run at the same time. Each thread makes a
// body of its own.
double runs_a_second(ThreadPool& pool, const std::function<std::function<void()>()>& make) {
  std::vector<double> rates(static_cast<std::size_t>(pool.num_threads()));
  pool.run(pool.num_threads(), [&](std::int64_t tile, int) {
    const std::function<void()> body = make();
    body();  // warms pages and caches
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

at::TensorOptions options_for(const gpu::Queue& queue) {
  return at::TensorOptions().dtype(queue.on_host() ? at::kFloat : at::kBFloat16).device(device_of(queue));
}

void finish(const at::Tensor& value) { value.item<float>(); }  // waits for a GPU

double measured_flops(const gpu::Queue& queue, ThreadPool& pool) {
  const std::int64_t n = queue.on_host() ? 384 : 4096;
  const double products = runs_a_second(pool, [options = options_for(queue), n] {
    return [a_NN = at::ones({n, n}, options), b_NN = at::ones({n, n}, options)] {
      finish(at::mm(a_NN, b_NN).select(0, 0).select(0, 0));
    };
  });
  return products * 2 * std::pow(static_cast<double>(n), 3);
}

double measured_reads(const gpu::Queue& queue, ThreadPool& pool) {
  const auto options = options_for(queue);
  // More than the caches hold: 64 MiB per core, but at most 1 GiB in total, because memory may be limited on hosts with
  // many cores.
  const std::int64_t bytes =
                         queue.on_host() ? std::min<std::int64_t>(64 << 20, (1 << 30) / pool.num_threads()) : 512 << 20,
                     count = bytes / static_cast<std::int64_t>(options.dtype().itemsize());
  const double reads =
      runs_a_second(pool, [&] { return [values_N = at::ones({count}, options)] { finish(at::sum(values_N)); }; });
  return reads * static_cast<double>(bytes);
}

}  // namespace

Speed measured_speed(const gpu::Queue& queue, bool writes) {
  static std::map<int, Speed> by_device;  // a plan may have thousands of tasks
  const auto [found, is_new] = by_device.try_emplace(queue.device);
  Speed& speed = found->second;
  if (!is_new && (!writes || speed.flops <= 0 || speed.bytes_per_second > 0)) return speed;
  try {
    ThreadPool pool(queue.on_host() ? usable_cores() : 1);
    if (is_new) speed.flops = measured_flops(queue, pool);
    if (writes) speed.bytes_per_second = measured_reads(queue, pool);
  } catch (const std::exception& error) {  // a missing estimate is no reason to fail
    if (!is_out_of_memory(error)) throw;
    speed = {};
  }
  return speed;
}

std::optional<Speed> known_speed(std::string_view card) {
  // 36,108 tokens/s and 17.86 ms a token of a model of 8.03e9 parameters, 1.61e10 bytes.
  if (card == "H200") return Speed{36108 * 2 * 8.03e9, 1.61e10 / 0.01786};
  return std::nullopt;
}

double seconds_of(const ModelWork& work, double parameters, double weight_bytes, const Speed& speed, double devices) {
  const ModelWork whole{work.read, 0, work.learnt, 1};
  double seconds = flops_of(whole, parameters) / speed.flops;
  if (work.written > 0) {
    const double steps = work.written / std::max(work.at_once, 1.0);
    seconds += std::max(2 * parameters * work.written / speed.flops, steps * weight_bytes / speed.bytes_per_second);
  }
  return seconds / devices;
}

}  // namespace magister
