// Latent attention for GPUs: the kernels between its products, attention over latents in pages, and the products of
// each head that gpu_latent.cpp asks for.
// Calculated, not measured: a block of attention holds 97 KB of shared memory at W = 576, so two fit on a
// multiprocessor of an H200, and one copies latents while the other multiplies. 16 heads take 3 x 2 x 16 x 64 x 544
// operations of the tensor cores for 74 KB, about half of the time that the memory needs.
#include "magister/device/launch_cuda.cuh"
#include "model/gpu/head_product_kernel.h"
#include "model/gpu/index_kernels.h"
#include "model/gpu/latent_attention_kernels.h"
#include "model/gpu/latent_kernels.h"

using magister::gpu::Bf16;

MAGISTER_INSTANTIATE(magister::gpu::ShortVectors<Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::ShortVectors<float>);
MAGISTER_INSTANTIATE(magister::gpu::TurnQueries<Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::TurnQueries<float>);
MAGISTER_INSTANTIATE(magister::gpu::PlaceHeads<Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::PlaceHeads<float>);
MAGISTER_INSTANTIATE(magister::gpu::IndexRows<Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::IndexRows<float>);
MAGISTER_INSTANTIATE(magister::gpu::IndexScores<Bf16>);
MAGISTER_INSTANTIATE(magister::gpu::IndexScores<float>);
MAGISTER_INSTANTIATE(magister::gpu::ChooseKeys);
MAGISTER_INSTANTIATE(magister::gpu::LatentAttention);
MAGISTER_INSTANTIATE(magister::gpu::CombineLatents);

#define MAGISTER_HEAD_PRODUCT(TILES, STACKS, ALIGNED) \
  MAGISTER_INSTANTIATE(                               \
      magister::gpu::EachHead<                        \
          magister::gpu::DecodeProduct<16, 1, magister::CodeFormat::Offset::kMiddle, TILES, STACKS, ALIGNED>>)
#define MAGISTER_WIDE_HEAD_PRODUCT(TILES) \
  MAGISTER_INSTANTIATE(                   \
      magister::gpu::EachHead<magister::gpu::WideProduct<16, 1, magister::CodeFormat::Offset::kMiddle, TILES>>)

MAGISTER_HEAD_PRODUCT(1, 1, true);
MAGISTER_HEAD_PRODUCT(1, 2, true);
MAGISTER_HEAD_PRODUCT(2, 2, true);
MAGISTER_HEAD_PRODUCT(4, 2, true);
MAGISTER_HEAD_PRODUCT(8, 2, true);
MAGISTER_HEAD_PRODUCT(4, 1, false);
MAGISTER_WIDE_HEAD_PRODUCT(4);
MAGISTER_WIDE_HEAD_PRODUCT(8);
