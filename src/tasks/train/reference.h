// What the reference model of DPO - the weights that the training begins with - says of every answer, computed once before the first step and
// kept in the working file: never a second model in memory.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/parallel/communicator.h"
#include "magister/train/trainer.h"
#include "tasks/train/data.h"

namespace magister {

// /reference/logprob and /reference/crc32c of n samples.
std::vector<ColumnSpec> reference_columns(std::uint64_t num_samples);

struct ReferenceWork {
  const Communicator& world;
  ResultsFile& file;
  const TrainingData& data;
  Trainer& trainer;                 // as it was made
  std::function<bool()> stop;       // agreed by all ranks
  std::function<void()> heartbeat;  // any thread
};

// By sample, nats, 0 for pairs that take no part: the units of the file are divided among the ranks, and each unit's micro-batches are a
// function of the unit. What an earlier run has written is taken from the file. nullopt: the job was asked to stop. Throws Error(kData)
// for a log-probability that is not finite, naming the record. Collective over world.
std::optional<std::vector<double>> reference_logprobs(const ReferenceWork& work);

}  // namespace magister
