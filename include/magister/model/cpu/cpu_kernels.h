// CpuKernels: the inner loops of the fast CPU path. One source is compiled for AVX2 and for AVX-512, and one of the
// builds is chosen at start by the CPU's features. A kernel runs on one thread, on a tile that stays in cache. Both
// builds use 16-lane arithmetic in the same order, and fused multiply-adds in products. Their results differ only where
// the compiler may fuse.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/model/activation.h"

namespace magister {

// State of one row for the online log-sum-exp over slices of the vocabulary. Source: Milakov & Gimelshein, arXiv
// 1805.02867.
struct SoftmaxState {
  float maximum = -__builtin_inff();
  double sum = 0;           // of exp(z - maximum); stays NaN once a logit was NaN or infinite
  double weighted_sum = 0;  // of exp(z - maximum) * (z - maximum)
};

// Storage of a product's weights; the arithmetic is f32. The first three are numbers, the others are QuantizedPanels.
enum class WeightFormat { kF32, kBF16, kF16, kInt8, kInt4, kInt8Kept, kInt4Kept };
inline constexpr int kNumWeightFormats = 3;  // formats of numbers
inline constexpr int kNumQuantFormats = 4;   // int8, int4, and the same with scales and offsets from a file

// How a product of few rows prefetches a panel, which comes from memory and is read once: the bytes from the weights in
// use to the line that it asks for, also beyond the panel's end. 0: it asks for none, and the CPU's own prefetcher
// reads ahead.
struct PanelFetch {
  std::int64_t ahead = 0;
  bool into_l2 = false;  // false: into L1
};

// C[r, n] = (C[r, n] or 0) + a[r, 0] * b[0, n] + a[r, 1] * b[1, n] + ..., fused, in this order. So the bits of an
// element depend only on its row of a and its column of b. Strides in elements.
struct Product {
  const float* a = nullptr;  // [rows, k]
  std::int64_t a_stride = 0, rows = 0;
  const void* b = nullptr;  // [k, columns]; up to 15 elements after a row's last column are read and not used
  std::int64_t b_stride = 0, k = 0;
  float* c = nullptr;  // [rows, columns]
  std::int64_t c_stride = 0, columns = 0;
  bool accumulate = false;
  float* add_to = nullptr;  // if set, add_to[r, n] += the sum, and C is scratch
  std::int64_t add_stride = 0;
  const void* next = nullptr;   // memory that is read after b, prefetched into L2 meanwhile; nullptr: none
  std::int64_t next_bytes = 0;  // size of `next`
  bool streams = false;         // b is a panel that comes from memory and is read once
  PanelFetch fetch{};           // only if it streams
};

// One panel of 48 columns of quantised weights: b[k, n] = q[k, n] * scale[group of k, n], which is exact in f32. A word
// holds 4 (int8) or 8 (int4) rows of k of one column, the lowest bits first, as q + 128 or q + 8. For codes from a file
// ("kept codes") b[k, n] = code * scale + offset, rounded once. The offset is a minimum, or -zero * scale, which is
// exact.
struct QuantizedPanel {
  const std::uint32_t* words = nullptr;   // [words, 48]; row k is in word (lead mod 8 + k) / 4 or / 8
  const std::uint16_t* scales = nullptr;  // [groups, 48] bf16
  std::int64_t group = 0;                 // rows of k per scale, a multiple of 8; 0: one scale for all rows
  std::int64_t lead = 0;                  // rows of the first group that precede row 0
  // Only for kept codes:
  const std::uint16_t* offsets = nullptr;  // [groups, 48] f16; nullptr: the zero point is 128 or 8
  bool half_scales = false;                // scales are f16
  bool offsets_are_zeros = false;          // offsets are zero points; false: minima
};

// c[r, n] (+)= a[r, :] * b[:, n] over panels of codes, for rows of texts that are being written. Inputs are taken in
// blocks: a group, or 128 inputs of it where it has more. In a block a[r, :] is rounded to 16 bits: multiples of a
// power of two, 2^-15 of the power above its largest number. The sum with the codes is one of integers, exact, so the
// bits of an element depend neither on the other rows nor on the instruction set. The sum times step and scale, and the
// sum of the rounded activations times the offset, are then added up in f32, block after block.
struct CodeProduct {
  const float* a = nullptr;  // [rows, k]
  std::int64_t a_stride = 0, rows = 0, k = 0;
  QuantizedPanel panel;                            // the first
  std::int64_t panel_words = 0, panel_groups = 0;  // words, and scales, from one panel to the next
  float* c = nullptr;                              // [rows, columns]
  std::int64_t c_stride = 0, columns = 0;
  bool add = false;
};

// c[r, n] (+)= a[r, :] * b[:, n] with a rounded to bf16, b in bf16 and sums in f32. b is stored in panels of 48 columns
// of pairs, [Kp / 2][48][2], with Kp = k rounded up to 32 (zeros after row k). The bits of an element depend on its
// row, its column and the instructions that multiply: AVX512-BF16 and AMX add in different orders.
struct Bf16Product {
  const float* a = nullptr;  // [rows, k]
  std::int64_t a_stride = 0, rows = 0, k = 0;
  const std::uint16_t* panels = nullptr;
  std::int64_t panel_stride = 0;  // elements between two panels
  float* c = nullptr;             // [rows, columns]
  std::int64_t c_stride = 0, columns = 0;
  bool add = false;
};

// One softmax over columns of logits (see CpuKernels::softmax_columns): exp(z * factor - maxima[c]) * scales[c].
struct ColumnSoftmax {
  float factor = 1;
  const float* maxima = nullptr;  // [columns]
  const float* scales = nullptr;  // [columns]; nullptr: none
};

// The gated delta rule of one value head over some tokens, see DeltaConfig.
struct DeltaRule {
  const float *queries, *keys;      // [tokens, key_dim], divided by their lengths
  const float* values;              // [tokens, value_dim]
  const float *strengths, *decays;  // [tokens]
  std::int64_t tokens, key_dim, value_dim;
  float* state;  // [ceil(value_dim / 16), key_dim, 16], read and written
  float* out;    // [tokens, value_dim]
  std::int64_t out_stride;
};

struct CpuKernels {
  const char* name;

  // Indexed by the storage of b.
  void (*multiply[kNumWeightFormats])(const Product& product);
  // Rows that are being written times codes of 8 bits, and of 4.
  void (*multiply_codes[2])(const CodeProduct& product);
  // Writes rows [begin, end) of k as f32 [end - begin, 48].
  void (*widen_quantized[kNumQuantFormats])(const QuantizedPanel& panel, std::int64_t begin, std::int64_t end,
                                            float* out);

  // out[r, :] = x[r, :] * rsqrt(mean(x[r, :]^2) + eps) * weight. Row strides in elements; out may be x.
  void (*rms_norm)(const float* x, std::int64_t x_stride, const float* weight, float eps, float* out,
                   std::int64_t out_stride, std::int64_t rows, std::int64_t columns);
  // Rotates pairs (i, i + half) of one head vector in place. cos and sin have `half` entries.
  void (*rope)(float* head, const float* cos, const float* sin, std::int64_t half);
  // Indexed by Activation: out[r, f] = act(gate_up[r, f]) * gate_up[r, F + f] with F = columns.
  void (*activate[kNumActivations])(const float* gate_up, std::int64_t stride, float* out, std::int64_t out_stride,
                                    std::int64_t rows, std::int64_t columns);
  // gpt-oss: out[r, f] = g sigmoid(alpha g) (1 + u), where g is gate clipped to at most limit, and u is up clipped to
  // +-limit.
  void (*clamped_swiglu)(const float* gate_up, std::int64_t stride, float* out, std::int64_t out_stride,
                         std::int64_t rows, std::int64_t columns, float alpha, float limit);
  // Indexed by Activation: out[r, f] = act(up[r, f]), for an MLP without a gate.
  void (*activate_alone[kNumActivations])(const float* up, std::int64_t stride, float* out, std::int64_t out_stride,
                                          std::int64_t rows, std::int64_t columns);
  // Adds bias to every row.
  void (*add_bias)(float* x, std::int64_t stride, const float* bias, std::int64_t rows, std::int64_t columns);
  // One step of online softmax on a row of attention scores: s = s * scale on [begin, end); the rest of [0, n) is
  // masked. Writes exp(s - new maximum) (0 where masked) back, updates maximum and sum, and returns the factor for
  // earlier sums.
  float (*softmax_step)(float* scores, std::int64_t n, std::int64_t begin, std::int64_t end, float scale,
                        float* maximum, float* sum);
  // x = cap * tanh(x * factor / cap): keeps scores and logits within +-cap (Gemma 2, arXiv 2408.00118).
  void (*softcap)(float* x, std::int64_t n, float factor, float cap);
  void (*scale)(float* x, float factor, std::int64_t n);
  // Adds logits[0, n) to the state.
  void (*logsumexp_step)(const float* logits, std::int64_t n, SoftmaxState* state);
  // For the head in training. z[entries, columns] are logits of a slice of the vocabulary; a column is a row of text,
  // and columns is a multiple of 16. maxima[c] = max of z * factor over the entries, sums[c] = sum of exp(z * factor -
  // maxima[c]), NaN if a logit is not finite.
  void (*logsumexp_columns)(const float* z, std::int64_t entries, std::int64_t columns, float factor, float* maxima,
                            double* sums);
  // Replaces z by the sum of the two softmaxes, times 1 - (z / cap)^2 if cap is not 0 (the derivative of softcap).
  void (*softmax_columns)(float* z, std::int64_t entries, std::int64_t columns, const ColumnSoftmax& first,
                          const ColumnSoftmax& second, float cap);
  // Writes the positions i in [0, n) with logits[i] > threshold to out (room for n), ascending, and returns their
  // number.
  std::int64_t (*above)(const float* logits, std::int64_t n, float threshold, std::int32_t* out);
  // To bf16 bits, rounded to nearest even.
  void (*to_bf16)(const float* x, std::uint16_t* out, std::int64_t n);
  void (*from_bf16)(const std::uint16_t* x, float* out, std::int64_t n);
  void (*from_f16)(const std::uint16_t* x, float* out, std::int64_t n);
  // out[i] = the sum over t < num_taps of rows[t][i] * taps[t * stride + i], in this order, for i < n.
  void (*convolve)(const float* const* rows, const float* taps, std::int64_t stride, std::int64_t num_taps,
                   std::int64_t n, float* out);
  void (*delta_rule)(const DeltaRule& rule);
  // nullptr: bf16 weights are widened and multiplied in f32
  void (*multiply_bf16)(const Bf16Product& product) = nullptr;
};

// The kernels of this process: "avx2", "avx512", "avx512vnni", whose products with codes are faster, or "avx512bf16"
// and "amx", which have bf16 products as well.
// Chosen once: the fastest that this CPU supports, or those that the environment variable MAGISTER_CPU_KERNELS names
// (for tests). Throws Error(kConfig) if the CPU does not support them.
const CpuKernels& cpu_kernels();
const CpuKernels& cpu_kernels_avx2();
const CpuKernels* cpu_kernels_avx512();  // nullptr where the CPU cannot run it
const CpuKernels& cpu_kernels_f32();     // the widest that multiply bf16 weights in f32
// All kernels that this CPU supports, the narrowest first.
const std::vector<const CpuKernels*>& cpu_kernels_here();
// Selects the kernels to use from now on: for tests, and for ranks that must use the same. Weights that were packed
// before must no longer be used.
void use_cpu_kernels(const CpuKernels& kernels);

// Features of this CPU, as text for doctor, --version and run.jsonl: "avx2 fma avx512 avx512vnni avx512bf16 amx-bf16".
const char* cpu_features();
// True if the kernels in use have bf16 products. The default kernels have them only where they are faster than fp32
// products: with AMX tiles, or with AVX512-BF16 on AMD. Intel cores without AMX run VDPBF16PS at half the rate of an
// fp32 FMA (measured on Sapphire Rapids with AMX masked: bf16 86, fp32 168 GFLOP/s per core).
bool cpu_prefers_bf16();
// How products of this number of rows read panels fastest on this CPU. It changes no bits. Measured on AMD's Zen 4 with
// AVX-512: up to 5 rows read 31 GB/s without prefetches and 24 with those into L1; 8 rows read 25 GB/s with prefetches
// into L2, 16 with those into L1 and 21 without. The AVX2 kernels use it for one or two rows.
PanelFetch panel_fetch(std::int64_t rows);
// Most inputs of a panel that a product of many rows uses for all of its rows before it goes on: 192 are 36 kB, for an
// L1 of 48 kB. AMD's CPUs read more from L2 as fast, and fewer slabs save reading and writing the sums.
std::int64_t slab_inputs();
// Most rows that go through a block of a layer, or through a product, together, at most 256. With the AVX2 kernels 128:
// of 576 inputs they are 295 kB, for the L2 of 512 kB of Zen 2 and 3. It changes no bits.
std::int64_t rows_of_tile();

}  // namespace magister
