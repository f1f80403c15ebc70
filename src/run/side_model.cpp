// See side_model.h.
#include "magister/run/side_model.h"

#include <utility>

#include "magister/core/error.h"
#include "magister/run/earlier_tasks.h"

namespace magister {

SideModel::SideModel(const ModelSection& section, const RunContext& context, Names names)
    : names_(std::move(names)), checkpoint_(available_model(section, context, is_placeholder_)) {}

void SideModel::open(const Communicator& world, const std::optional<gpu::Queue>& gpu, const std::vector<int>& gpus) {
  model_ = open_model(world, checkpoint_, gpu, gpus);
  model_.is_second = true;
}

std::string SideModel::path() const { return printable(checkpoint_.path(), 4096); }

Attributes SideModel::identity(const Communicator& world, const StopPoll& poll) const {
  Attributes attributes = checkpoint_.identity(world, poll);
  for (auto& attribute : attributes) attribute.first.insert(0, names_.prefix);
  return attributes;
}

MemoryParts SideModel::memory(int tp_size, const PassShape& pass, std::uint64_t cache_pages) const {
  MemoryParts parts = model_.device_memory(tp_size, pass, cache_pages);
  for (auto& part : parts) part.first.insert(0, names_.part + ": ");
  return parts;
}

Transformer SideModel::load(ProcessGroup& group, ThreadPool& pool, const LoadHook& hook) const {
  Transformer model = model_.load(group, pool, hook);
  model.self_test();
  return model;
}

}  // namespace magister
