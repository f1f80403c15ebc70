// The worker that writes texts on a shard: it runs the generator over the records that its group claims.
#pragma once

#include <memory>
#include <optional>

#include "magister/run/generator_shard.h"
#include "magister/runtime/stop_rules.h"
#include "magister/text/tokenizer.h"
#include "tasks/generate/columns.h"
#include "tasks/generate/config.h"
#include "tasks/generate/request_table.h"

namespace magister {

// Everything besides the model that decides the texts. The job opens it, and the workers of all shards read it.
struct GenerateSetup {
  GenerateConfig config;  // without `auto`; its sampling has the model's rules and the ids of logit_bias
  const Tokenizer& tokenizer;
  StopRules stops{};
  std::shared_ptr<const Constraint> constraint{};  // null: texts are not constrained
  std::optional<ShardGuide> guide{};               // of this run; nullopt: texts are not guided
  std::shared_ptr<const RequestTable> requests{};  // null: the task's keys hold for all records
  // The rules that end the texts of a record, by its number within the slice.
  const StopRules& stops_of(std::uint64_t index) const { return requests ? requests->kind(index).stops : stops; }
};

// Keeps a reference to setup. Collective over the group.
std::unique_ptr<ShardWorker> make_generate_worker(ShardContext shard, const GenerateSetup& setup,
                                                  const GenerateShape& shape);

}  // namespace magister
