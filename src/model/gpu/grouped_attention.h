// Decoding attention on the tensor cores: the shapes that it supports, and how many chunks a block computes.
// Source: grouped_attention_kernels.h. Legend as in attention_kernels.h.
#pragma once

#include "magister/device/launch.h"
#include "model/gpu/attention_arguments.h"

namespace magister::gpu {

// True if paged_attention() computes these heads by GroupedAttention; by shape alone, so that a model's rows always
// have the same kernel. a.V must be set here and below.
bool is_grouped_attention(const AttentionArguments<Bf16>& a);

// Chunks that a block computes one after the other, for `blocks` blocks for each chunk of the longest row. With C of
// them nothing is left to combine. Bits do not depend on it.
int chunks_of_a_block(std::int64_t blocks, int C);

// Queues GroupedAttention, for heads that is_grouped_attention() accepts, and FoldChunks if a block does not compute
// all C chunks.
void grouped_attention(const AttentionArguments<Bf16>& a, int chunks_a_block, const Queue& queue);

// Queues PagedAttention and CombineChunks for any shape: with them GroupedAttention is compared. Defined for Bf16 and
// float.
template <typename A>
void plain_paged_attention(const AttentionArguments<A>& arguments, const Queue& queue);

}  // namespace magister::gpu
