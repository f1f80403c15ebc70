// CpuKernels: the inner loops of the fast CPU path, one source compiled for AVX2 and for AVX-512 and chosen once by CPU
// feature. They run on one thread on a tile that stays in cache. Both builds use 16-lane arithmetic in the same order, and
// fused multiply-adds in products; they differ from each other only where the compiler may fuse.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/model/activation.h"

namespace magister {

// One row's state of the online log-sum-exp over slices of the vocabulary. Source: Milakov & Gimelshein, arXiv 1805.02867.
struct SoftmaxState {
  float maximum = -__builtin_inff();
  double sum = 0;           // of exp(z - maximum); NaN for good once a logit was NaN or infinite
  double weighted_sum = 0;  // of exp(z - maximum) * (z - maximum)
};

// How the weights of a product are stored; the arithmetic is f32. The first three are numbers, the others QuantizedPanels.
enum class WeightFormat { kF32, kBF16, kF16, kInt8, kInt4, kInt8Kept, kInt4Kept };
inline constexpr int kNumWeightFormats = 3;  // of numbers
inline constexpr int kNumQuantFormats = 4;   // int8, int4; the same with scales and offsets of a file

// C[r, n] = (C[r, n] or 0) + a[r, 0] * b[0, n] + a[r, 1] * b[1, n] + ..., fused, in this order: an element's bits depend on
// nothing but its row of a and its column of b. Strides in elements.
struct Product {
  const float* a = nullptr;  // [rows, k]
  std::int64_t a_stride = 0, rows = 0;
  const void* b = nullptr;  // [k, columns]; up to 15 elements behind a row's last column are read, never used
  std::int64_t b_stride = 0, k = 0;
  float* c = nullptr;  // [rows, columns]
  std::int64_t c_stride = 0, columns = 0;
  bool accumulate = false;
  float* add_to = nullptr;  // if set, add_to[r, n] += the sum, and C is not written
  std::int64_t add_stride = 0;
  const void* next = nullptr;   // what will be read after b, or nullptr: fetched into L2 meanwhile
  std::int64_t next_bytes = 0;  // of it
  bool streams = false;  // b is a panel that comes from memory and is read once: fetched ahead, beyond its end too
};

// One panel of 48 columns of quantised weights: b[k, n] = q[k, n] * scale[group of k, n], which is exact in f32. A word holds
// 4 (int8) or 8 (int4) rows of k of one column, the lowest bits first, as q + 128 or q + 8. Codes that a file held ("kept")
// have b[k, n] = code * scale + offset in one rounding: the offset is a minimum, or -zero * scale, which is exact.
struct QuantizedPanel {
  const std::uint32_t* words = nullptr;   // [words, 48]; row k stands in word (lead mod 8 + k) / 4 or / 8
  const std::uint16_t* scales = nullptr;  // [groups, 48] bf16
  std::int64_t group = 0;                 // rows of k a scale, a multiple of 8; 0: one for all
  std::int64_t lead = 0;                  // rows of the first group before row 0
  // Of kept codes alone:
  const std::uint16_t* offsets = nullptr;  // [groups, 48] f16; nullptr: the zero is 128 or 8
  bool half_scales = false;                // f16
  bool offsets_are_zeros = false;          // else minima
};

// c[r, n] (+)= a[r, :] * b[:, n] with a rounded to bf16, b in bf16 and sums in f32. b stands in panels of 48 columns of pairs,
// [Kp / 2][48][2] with Kp = k rounded up to 32 (zeros behind k). An element's bits depend on its row and its column alone, and on which
// instructions multiply: AVX512-BF16 and AMX add in different orders.
struct Bf16Product {
  const float* a = nullptr;  // [rows, k]
  std::int64_t a_stride = 0, rows = 0, k = 0;
  const std::uint16_t* panels = nullptr;
  std::int64_t panel_stride = 0;  // numbers from panel to panel
  float* c = nullptr;             // [rows, columns]
  std::int64_t c_stride = 0, columns = 0;
  bool add = false;
};

// One softmax of columns of logits (see CpuKernels::softmax_columns): exp(z * factor - maxima[c]) * scales[c].
struct ColumnSoftmax {
  float factor = 1;
  const float* maxima = nullptr;  // [columns]
  const float* scales = nullptr;  // [columns]; nullptr: none
};

struct CpuKernels {
  const char* name;

  // By the storage of b.
  void (*multiply[kNumWeightFormats])(const Product& product);
  // The same over one panel (product.b is not used, at most 48 columns), from WeightFormat::kInt8 on, for few rows: every 2 to 4 of them
  // unpack the weights once more. The bits are those of widen_quantized and multiply.
  void (*multiply_quantized[kNumQuantFormats])(const Product& product, const QuantizedPanel& panel);
  // Rows [begin, end) of k as f32 [end - begin, 48].
  void (*widen_quantized[kNumQuantFormats])(const QuantizedPanel& panel, std::int64_t begin, std::int64_t end,
                                            float* out);

  // out[r, :] = x[r, :] * rsqrt(mean(x[r, :]^2) + eps) * weight. Row strides in elements; out may be x.
  void (*rms_norm)(const float* x, std::int64_t x_stride, const float* weight, float eps, float* out,
                   std::int64_t out_stride, std::int64_t rows, std::int64_t columns);
  // Rotates pairs (i, i + half) of one head vector in place: cos, sin have `half` entries.
  void (*rope)(float* head, const float* cos, const float* sin, std::int64_t half);
  // By Activation: out[r, f] = act(gate_up[r, f]) * gate_up[r, F + f]; out row stride given.
  void (*activate[kNumActivations])(const float* gate_up, std::int64_t stride, float* out, std::int64_t out_stride,
                                    std::int64_t rows, std::int64_t columns);
  // out[r, f] = g sigmoid(alpha g) (1 + u), of g = gate up to limit and u = up within +-limit (gpt-oss); out row stride given.
  void (*clamped_swiglu)(const float* gate_up, std::int64_t stride, float* out, std::int64_t out_stride,
                         std::int64_t rows, std::int64_t columns, float alpha, float limit);
  // By Activation: out[r, f] = act(up[r, f]), of an MLP without a gate; both row strides given.
  void (*activate_alone[kNumActivations])(const float* up, std::int64_t stride, float* out, std::int64_t out_stride,
                                          std::int64_t rows, std::int64_t columns);
  // Adds bias to every row.
  void (*add_bias)(float* x, std::int64_t stride, const float* bias, std::int64_t rows, std::int64_t columns);
  // One step of online softmax on a row of attention scores: s = s * scale on [begin, end), the rest of [0, n) is masked.
  // Writes exp(s - new maximum) (0 where masked) back, updates maximum and sum, returns the factor for earlier sums.
  float (*softmax_step)(float* scores, std::int64_t n, std::int64_t begin, std::int64_t end, float scale,
                        float* maximum, float* sum);
  // x = cap * tanh(x * factor / cap): scores and logits that stay within +-cap (Gemma 2, arXiv 2408.00118).
  void (*softcap)(float* x, std::int64_t n, float factor, float cap);
  // x *= factor
  void (*scale)(float* x, float factor, std::int64_t n);
  // Folds logits[0, n) into the state.
  void (*logsumexp_step)(const float* logits, std::int64_t n, SoftmaxState* state);
  // Training's head, logits z[entries, columns] of a slice of the vocabulary, columns a multiple of 16, each a row of text:
  // maxima[c] = max of z * factor over the entries, sums[c] = sum of exp(z * factor - maxima[c]), NaN when a logit is not finite.
  void (*logsumexp_columns)(const float* z, std::int64_t entries, std::int64_t columns, float factor, float* maxima,
                            double* sums);
  // z becomes the sum of the two softmaxes, times 1 - (z / cap)^2 where cap is not 0 (the derivative of softcap).
  void (*softmax_columns)(float* z, std::int64_t entries, std::int64_t columns, const ColumnSoftmax& first,
                          const ColumnSoftmax& second, float cap);
  // Positions i in [0, n) with logits[i] > threshold, ascending; returns how many were written to out (room for n).
  std::int64_t (*above)(const float* logits, std::int64_t n, float threshold, std::int32_t* out);
  // bf16 bits, round to nearest even.
  void (*to_bf16)(const float* x, std::uint16_t* out, std::int64_t n);
  void (*from_bf16)(const std::uint16_t* x, float* out, std::int64_t n);
  void (*from_f16)(const std::uint16_t* x, float* out, std::int64_t n);
  // nullptr: bf16 weights are widened and multiplied in f32.
  void (*multiply_bf16)(const Bf16Product& product) = nullptr;
};

// The kernels of this process: "avx2", "avx512", or "avx512bf16" and "amx", which are "avx512" with bf16 products. Chosen once: the fastest
// that this CPU has, or what MAGISTER_CPU_KERNELS in the environment names (tests). Throws Error(kConfig) for one that it has not.
const CpuKernels& cpu_kernels();
const CpuKernels& cpu_kernels_avx2();
const CpuKernels* cpu_kernels_avx512();  // nullptr where the CPU cannot run it
// All that this CPU runs, the narrowest first.
const std::vector<const CpuKernels*>& cpu_kernels_here();
// From here on these: for tests, and for ranks that must agree. Weights that were packed before must not be used any more.
void use_cpu_kernels(const CpuKernels& kernels);

// What this CPU offers, in words for doctor, --version and run.jsonl: "avx2 fma avx512f avx512bf16 amx-bf16".
const char* cpu_features();
// Whether the kernels in use have bf16 products. They are chosen where those are faster than fp32 ones: AMX tiles, or AVX512-BF16 on AMD.
// Intel cores without AMX run VDPBF16PS at half the rate of an fp32 FMA (measured on Sapphire Rapids with AMX masked: bf16 86, fp32 168
// GFLOP/s a core).
bool cpu_prefers_bf16();

}  // namespace magister
