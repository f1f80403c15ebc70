// The weights that a training begins with, from the model's file into the host's memory.
#pragma once

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/thread_pool.h"
#include "magister/train/host_weights.h"
#include "magister/train/parameters.h"

namespace magister {

// ParameterLayout::read() into `weights`, by all threads of the pool and, where the ranks of a host have one copy, by each of them a part. When it
// returns all of it is there. Throws what reading threw, on every rank of the host the same error. Collective over host.
void read_first_weights(const ParameterLayout& layout, const TensorFile& file, HostWeights& weights,
                        const Communicator& host, const NewHead& new_head, ThreadPool& pool);

}  // namespace magister
