// The command bench: this program's own speed against the machine's limit, in one process, as medians of several runs
// (decode and judge: one run). tests/bench/peers.py makes the table against other programs.
#pragma once

#include <cstdint>
#include <string>

namespace magister {

struct BenchOptions {
  // sgemm | product | prefill | teacher | decode | prefix; on a GPU gemm | copy | read | prefill | teacher | decode |
  // judge | layer.
  std::string what;
  // cpu | cuda:N | host, which runs the GPU's code on the CPU for tests.
  std::string device = "cpu";
  bool random = false;  // on a GPU: random weights with the shapes of config.json
  bool graphs = true;   // on a GPU: decoding passes as CUDA graphs
  // On a GPU: cuDNN attention for long texts (model.attention); the host lacks it and measures without it.
  bool cudnn = false;
  // On a GPU: the library's products for decoding (model.decoding); the host uses our own.
  bool throughput = false;
  bool fp8_cache = false;      // on a GPU: pages of 8-bit floats (model.kv_cache)
  std::string model;           // path; not used by sgemm, product, gemm, copy, read
  std::int64_t tokens = 512;   // packed tokens of the unit
  std::int64_t sequences = 1;  // sequences of the unit
  std::int64_t top_k = 64;
  std::string dtype = "auto";
  // product: f32 | bf16 | f16 | int8 | int4 | int8-kept | int4-kept. For a model int8 and int4 quantise it.
  std::string format = "f32";
  std::int64_t group = 128;  // inputs per scale of int8 and int4
  // product: rows of the product, 0 means 1 as for one decoding sequence. layer: texts of a decoding pass, 0: a unit.
  std::int64_t rows = 0;
  // Tokens of each text that are already in the cache. decode on a GPU: tokens of each prompt, 0 means 16. On a CPU
  // only for decode, whose `tokens` are then passes.
  std::int64_t past = 0;
  std::int64_t layers = 0;  // on a GPU with `random`: number of layers to make; 0: all
  // judge: prompts that have pages at the same time, 0: all. More than fit into memory then queue as in a job.
  std::int64_t at_once = 0;
  bool uneven = false;  // on a GPU: sequences of one to eight times the shortest length
  int threads = 1;
  int repeats = 5;
  bool json = false;
};

// Returns one line of text or one JSON object: tokens_per_second, gflops (model FLOPs, with only the visible keys of
// attention, and the head only if it runs), seconds (median), weight_bytes, peak_bytes. product: gbs, the bytes of
// weights per second; read_gbs, the bytes per second that one thread can read when it only sums; and their ratio. On a
// GPU tflops replaces gflops. gemm: a bf16 product of 8192^3. copy: gbs read and written. read: gbs read. prefill,
// teacher: work_bytes and head_bytes, the peak memory of a pass and of the head beyond what is always allocated.
// decode: seconds_a_step, and gbs of the weights that a step reads. judge: prompts of `tokens` tokens and 128 new ones
// each, both counted, none of them shared. layer: see layer.h, as text a table.
// Throws Error(kUsage) for an unknown `what`.
std::string run_bench(const BenchOptions& options);

}  // namespace magister
