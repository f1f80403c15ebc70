// Reads the weights that a training starts from, from the model's file into host memory.
#pragma once

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/thread_pool.h"
#include "magister/train/host_weights.h"
#include "magister/train/parameters.h"

namespace magister {

// ParameterLayout::read() into `weights`, with all threads of the pool; if the ranks of a host share one copy, each
// reads a part. On return everything has been read. Throws the error of reading, the same on every rank of the host.
// Collective over host.
void read_first_weights(const ParameterLayout& layout, const TensorFile& file, HostWeights& weights,
                        const Communicator& host, const NewHead& new_head, ThreadPool& pool);

}  // namespace magister
