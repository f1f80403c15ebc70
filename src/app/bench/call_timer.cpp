// Stamps are CUDA events; on the host, where a call has finished when it returns, they are readings of the clock.
#include "app/bench/call_timer.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "app/bench/units.h"
#include "magister/core/error.h"
#include "magister/device/gpu_stamp.h"

namespace magister {
namespace {

using Clock = std::chrono::steady_clock;

thread_local CallTimer* current_timer = nullptr;

// Operations that start no work on a device: they make views or empty tensors, or query one. Calls inside them are
// timed.
bool starts_nothing(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::view",
      "aten::_unsafe_view",
      "aten::reshape",
      "aten::_reshape_alias",
      "aten::narrow",
      "aten::slice",
      "aten::select",
      "aten::as_strided",
      "aten::t",
      "aten::transpose",
      "aten::permute",
      "aten::expand",
      "aten::expand_as",
      "aten::unsqueeze",
      "aten::squeeze",
      "aten::flatten",
      "aten::unflatten",
      "aten::alias",
      "aten::detach",
      "aten::empty",
      "aten::empty_strided",
      "aten::empty_like",
      "aten::new_empty",
      "aten::resize_",
      "aten::to",
      "aten::contiguous",
      "aten::is_pinned",
      "aten::pin_memory",
      "aten::_pin_memory",
      "aten::item",
      "aten::lift_fresh",
      "aten::is_nonzero",
      "aten::result_type",
      "aten::size",
      "aten::stride",
      "aten::chunk",
      "aten::split",
      "aten::view_as",
      "aten::type_as",
      "aten::numel",
      "aten::unbind",
      "aten::resolve_conj",
      "aten::resolve_neg",
      "aten::is_contiguous",
      "aten::dim",
  };
  return kNames.contains(name);
}

// Reads the shapes [M, K] and [K, N] of a product; other calls keep zeros.
void read_product(const at::RecordFunction& function, TimedCall& call) {
  if (call.name.find("mm") == std::string::npos) return;
  const at::Tensor* left = nullptr;
  std::vector<at::Tensor> matrices;
  for (const c10::IValue& input : function.inputs()) {
    if (input.isTensor() && input.toTensor().defined() && input.toTensor().dim() == 2)
      matrices.push_back(input.toTensor());
  }
  for (const at::Tensor& matrix : matrices) {
    if (left != nullptr && left->size(1) == matrix.size(0)) {
      call.M = left->size(0);
      call.K = left->size(1);
      call.N = matrix.size(1);
      return;
    }
    left = &matrix;
  }
}

}  // namespace

struct CallTimer::Stamps {
  GpuStamp begin, end;
  Clock::time_point host_begin, host_end;
};

struct CallTimer::Observer {
  struct Seen : at::ObserverContext {};

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    CallTimer* timer = current_timer;
    if (timer == nullptr || starts_nothing(function.name())) return nullptr;
    if (timer->depth_++ == 0) {
      TimedCall call;
      call.name = function.name();
      read_product(function, call);
      timer->open(std::move(call));
    }
    return std::make_unique<Seen>();
  }
  static void end(const at::RecordFunction&, at::ObserverContext* seen) {
    CallTimer* timer = current_timer;
    if (timer != nullptr && seen != nullptr && --timer->depth_ == 0) timer->close();
  }
};

CallTimer::CallTimer(bool on_host) : on_host_(on_host) {}
CallTimer::~CallTimer() { stop(); }

void CallTimer::start() {
  MAGISTER_ASSERT(current_timer == nullptr && gpu::launch_watch == nullptr);
  calls_.clear();
  stamps_.clear();
  depth_ = 0;
  of_head_ = false;
  current_timer = this;
  gpu::launch_watch = this;
  observer_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(Observer::begin, Observer::end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

void CallTimer::stop() noexcept {
  if (observer_ != 0) at::removeCallback(std::exchange(observer_, 0));
  if (current_timer == this) current_timer = nullptr;
  if (gpu::launch_watch == this) gpu::launch_watch = nullptr;
}

void CallTimer::begin(const char* name, const gpu::WatchedProduct& product) {
  if (depth_++ > 0) return;
  TimedCall call;
  call.name = name;
  call.M = product.M;
  call.N = product.N;
  call.K = product.K;
  open(std::move(call));
}

void CallTimer::end() {
  if (--depth_ == 0) close();
}

void CallTimer::open(TimedCall call) {
  call.of_head = of_head_;
  calls_.push_back(std::move(call));
  Stamps& stamps = stamps_.emplace_back();
  if (on_host_) {
    stamps.host_begin = Clock::now();
  } else {
    stamps.begin = GpuStamp::record();
  }
}

void CallTimer::close() {
  if (on_host_) {
    stamps_.back().host_end = Clock::now();
  } else {
    stamps_.back().end = GpuStamp::record();
  }
}

double CallTimer::empty_call_ms() {
  if (on_host_) return 0;
  constexpr int kPairs = 33;
  std::vector<GpuStamp> begins, ends;
  begins.reserve(kPairs);
  ends.reserve(kPairs);
  for (int i = 0; i < kPairs; ++i) {
    begins.push_back(GpuStamp::record());
    ends.push_back(GpuStamp::record());
  }
  std::vector<double> found;
  found.reserve(kPairs);
  for (int i = 0; i < kPairs; ++i) found.push_back(ends[i].milliseconds_since(begins[i]));
  return median(found);
}

std::vector<TimedCall> CallTimer::finish() {
  stop();
  const double empty = empty_call_ms();
  const auto since_first = [this](const Stamps& stamps, bool end) {
    if (on_host_) {
      const Clock::time_point then = end ? stamps.host_end : stamps.host_begin;
      return std::chrono::duration<double, std::milli>(then - stamps_.front().host_begin).count();
    }
    return (end ? stamps.end : stamps.begin).milliseconds_since(stamps_.front().begin);
  };
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    calls_[i].begin_ms = since_first(stamps_[i], false);
    calls_[i].end_ms = std::max(calls_[i].begin_ms, since_first(stamps_[i], true) - empty);
  }
  stamps_.clear();
  return std::move(calls_);
}

}  // namespace magister
