// See throughput_decoding.h.
#include "magister/model/throughput_decoding.h"

#include "magister/core/error.h"
#include "model/gpu/decoder_places.h"

namespace magister {

void check_throughput_decoding(const ModelConfig& config, at::ScalarType dtype, int tp_size) {
  MAGISTER_CHECK(config.labels.empty(), ExitCode::kConfig,
                 "model.decoding: throughput for a classifier (it generates no text); remove the key");
  MAGISTER_CHECK(config.num_experts == 0, ExitCode::kConfig,
                 "model.decoding: throughput, but this model has experts (each gets few rows of a pass, and our own "
                 "kernels are made for few rows); remove the key");
  MAGISTER_CHECK(gpu::kernels_take(config, tp_size, activation_dtype(dtype)), ExitCode::kConfig,
                 "model.decoding: throughput, but the decoding kernels do not support this model's heads or dtype "
                 "(they need bf16); remove the key");
}

}  // namespace magister
