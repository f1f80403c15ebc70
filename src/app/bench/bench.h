// `magister bench`: this program's own speed against the machine's limit, in one process, best and median of several
// runs. The table against other programs is made by tests/bench/peers.py.
#pragma once

#include <cstdint>
#include <string>

namespace magister {

struct BenchOptions {
  // sgemm | product | prefill | teacher | decode | prefix; on a GPU gemm | copy | read | prefill | teacher | decode | judge | layer
  std::string what;
  std::string device = "cpu";  // cpu | cuda:N | host: the GPU's code on the CPU, for tests
  bool random = false;         // on a GPU: random weights of the shapes in config.json
  bool graphs = true;          // on a GPU: decoding passes as CUDA graphs
  bool cudnn =
      false;  // on a GPU: long texts' attention by cuDNN (model.attention); the host has none and measures without
  bool throughput = false;     // on a GPU: products of decoding by the library (model.decoding); on the host our own
  std::string model;           // for prefill and teacher
  std::int64_t tokens = 512;   // packed tokens of the unit
  std::int64_t sequences = 1;  // they are divided into
  std::int64_t top_k = 64;
  std::string dtype = "auto";
  std::string format =
      "f32";  // of product: f32 | bf16 | f16 | int8 | int4; of prefill and teacher: the last two quantise
  std::int64_t group = 128;  // of int8 and int4
  std::int64_t rows =
      0;  // of product, where 0 is 1, a decoding sequence; of layer: texts of a decoding pass, 0: a unit
  std::int64_t past = 0;  // on a GPU: tokens a text that stand in the cache before; decode: of the prompts, 0 means 16
  std::int64_t layers = 0;  // on a GPU with `random`: only so many layers are made; 0: all
  bool uneven = false;      // on a GPU: texts of a unit have one to eight parts of it
  int threads = 1;
  int repeats = 5;
  bool json = false;
};

// One line of text or one JSON object: tokens_per_second, gflops (model FLOPs, attention's visible keys only, the head
// only where it runs), seconds (median), weight_bytes, peak_bytes; product: bytes of weights per second and their ratio to
// what one thread reads a second when it only adds up (read_gbs). On a GPU: tflops for gflops; gemm: a bf16 product of 8192^3;
// copy: gbs read and written; read: gbs read; prefill, teacher: work_bytes and head_bytes, the peaks of a pass and of the head above what stays;
// decode: seconds_a_step and gbs of the weights that a step reads; judge: prompts of `tokens` and 128 new ones each, both counted;
// layer: layer.h, as text a table.
// Throws Error(kUsage) on an unknown `what`.
std::string run_bench(const BenchOptions& options);

}  // namespace magister
