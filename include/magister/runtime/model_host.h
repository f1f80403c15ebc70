// ModelHost: a model that one rank loads for itself, on its CPU or its GPU, and the generator that writes with it. It
// knows no task and no results file, so that a service can use it, too. (A model of several shards: ModelInstance.)
#pragma once

#include <cstdint>

#include "magister/engine/generator.h"
#include "magister/runtime/model_instance.h"

namespace magister {

// The arguments of a generator.
struct GeneratorSetup {
  GeneratorLimits limits;
  SamplingParams sampling;
  std::uint64_t seed = 0;
  Generator::Stop stop;
};

class ModelHost {
 public:
  // Loads the model. source is kept by reference. heartbeat is called before each tensor; it may be empty. self_test:
  // the fast paths are tested. Local.
  ModelHost(const OpenModel& source, int num_threads, const LoadHook& heartbeat, const GeneratorSetup& setup,
            bool self_test = true);

  Transformer& model() { return instance_.model(); }
  Generator& generator() { return generator_; }

 private:
  ModelInstance instance_;
  Generator generator_;  // refers to the instance's model
};

}  // namespace magister
