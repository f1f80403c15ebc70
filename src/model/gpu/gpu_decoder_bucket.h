// Inside GpuDecoder: the buffers of passes of one bucket, with their graphs.
// Legend as in gpu_decoder.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/device/cuda_graph.h"
#include "magister/device/gpu.h"
#include "model/gpu/gpu_decoder.h"

namespace magister::gpu {

// Identifies the memory whose addresses a graph holds. Numbers are used instead of addresses, because new memory may
// have the address of the old one, in whole or in part.
struct GpuDecoder::Memory {
  std::uint64_t cache = 0, rope = 0, partial = 0;
  bool operator==(const Memory&) const = default;
};

struct GpuDecoder::Places {
  std::int64_t rows = 0, chunks = 0;
  // Inputs, one block of bytes: slots i64 [R], then i32: ids, rotary rows, sequences, visible keys [R] each, page table
  // [R, 4 C].
  at::Tensor staging, inputs;
  at::Tensor slots_R, ids_R, rope_rows_R, sequence_R, visible_R, table_RP;
  // The first rows of the work buffers.
  at::Tensor hidden_RD, normed_RD, qkv_RQ, attention_RA, delta_RD, gate_up_RF2, middle_RF, squares_R2, given_RN,
      gate_RG;
  GpuEvent copied;                // after this, staging may be filled again
  std::vector<CudaGraph> graphs;  // one for the pass, or one per part if the group computes the sums
  Memory captured_with;
  int runs = 0;
};

}  // namespace magister::gpu
