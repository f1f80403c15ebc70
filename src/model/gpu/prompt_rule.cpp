// The times of both ways and the rule; decision 061 has the table.
#include "model/gpu/prompt_rule.h"

#include <algorithm>

#include "model/gpu/expert_product_kernel.h"

namespace magister::gpu {
namespace {

// Operations a second of a device that is full, and what differs between formats.
struct Rates {
  double ours, library;
  std::int64_t outputs;        // of a block
  double converted_bytes = 0;  // of memory for each weight that only one launch converts: 1 read, 2 written and read
  std::int64_t calls = 5;      // of the host for an expert, by a library: gather, product, activation, product, copy
};

Rates rates_of(at::ScalarType factors) {
  if (factors == at::kFloat) return {45e12, 50e12, FloatExpertProduct::kOutputs};
  if (factors == at::kFloat8_e4m3fn) return {500e12, 1390e12, ExpertProduct::kOutputs, 5, 6};  // and rows to 8 bits
  return {500e12, 700e12, ExpertProduct::kOutputs};
}

constexpr double kMemory = 3.7e12;  // bytes a second
constexpr double kCall = 4.5e-6, kProduct = 4e-6, kLaunch = 5e-6, kWait = 20e-6;

std::int64_t whole(std::int64_t numbers, std::int64_t block) { return (numbers + block - 1) / block; }

}  // namespace

PromptTimes prompt_times(const ExpertWidths& widths, at::ScalarType factors, std::int64_t tokens) {
  const Rates rates = rates_of(factors);
  const std::int64_t X = widths.experts, routes = tokens * widths.per_token,
                     row_blocks = whole(whole(routes, X), ExpertProduct::kRows);
  double one_launch = 0, device = 0;
  const auto add = [&](std::int64_t M, std::int64_t K) {
    const std::int64_t blocks = row_blocks * whole(M, rates.outputs);
    // These are the operations of all blocks that a device has at a time.
    const double operations = 2.0 * ExpertProduct::kRows * static_cast<double>(rates.outputs * K * kMultiprocessors);
    one_launch += kLaunch + static_cast<double>(whole(X * blocks, kMultiprocessors)) * operations / rates.ours +
                  rates.converted_bytes * static_cast<double>(X * M * K) / kMemory;
    device += static_cast<double>(X) *
              (kProduct + static_cast<double>(whole(blocks, kMultiprocessors)) * operations / rates.library);
  };
  add(widths.up, widths.hidden);
  add(widths.hidden, widths.mlp);
  // Rows are gathered before and copied behind: 2 bytes or 4 of each number, read and written.
  device += static_cast<double>(routes * widths.hidden * (factors == at::kFloat ? 16 : 8)) / kMemory;
  return {one_launch, kWait + std::max(device, static_cast<double>(X * rates.calls) * kCall)};
}

// As many tokens in passes of 2,048 as in passes of 8,192. In f32 one launch takes at most a tenth longer with many
// tokens, and with the few rows of texts, which f32 multiplies this way, too, far less time.
bool groups_prompts(const ExpertWidths& widths, at::ScalarType factors) {
  if (widths.experts == 0 || widths.mlp == 0 || widths.hidden % 8 != 0 || widths.mlp % 8 != 0) return false;
  if (factors == at::kFloat) return true;
  const PromptTimes few = prompt_times(widths, factors, 2048), many = prompt_times(widths, factors, 8192);
  return 4 * few.one_launch + many.one_launch <= 4 * few.by_library + many.by_library;
}

}  // namespace magister::gpu
