// See most_asked.h. A second reading of the file, because the shape of the results depends on it: about 2 s of one core
// for 10^5 requests of a kilobyte.
#include "tasks/generate/most_asked.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "magister/io/agreed_errors.h"
#include "tasks/generate/openai_request.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

// The key's number if it is one that a request may have; else 0.
std::uint64_t number_of(const Json& body, const char* key, const RequestRange& range) {
  const auto found = body.find(key);
  if (found == body.end() || !found->is_number_integer()) return 0;
  const auto number = found->get<std::int64_t>();
  return number >= range.least && number <= range.most ? static_cast<std::uint64_t>(number) : 0;
}

void add(const Json& body, std::uint64_t usual_tokens, MostAsked& most) {
  const std::uint64_t tokens =
      fewer(number_of(body, "max_tokens", kAskedTokens), number_of(body, "max_completion_tokens", kAskedTokens));
  most.new_tokens = std::max(most.new_tokens, tokens == 0 ? usual_tokens : tokens);
  most.texts = std::max(most.texts, number_of(body, "n", kAskedTexts));
  for (const char* const key : {"top_logprobs", "logprobs"})  // the latter is a number in /v1/completions
    most.top_logprobs = std::max(most.top_logprobs, number_of(body, key, kAskedTops));
}

}  // namespace

MostAsked most_asked(const RunContext& context, const GenerateConfig& config) {
  DatasetConfig whole = config.dataset;
  whole.slice_index = 0;
  whole.slice_count = 1;
  const Communicator& world = context.world;
  const Dataset dataset = Dataset::open(world, whole, context.stop_poll());
  const IndexRange all = dataset.records();
  const auto border = [&](int rank) {
    return all.begin + all.size() * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(world.size());
  };
  MostAsked most;
  run_agreed(world, [&] {
    const auto visit = [&](Record&& record) {
      const auto body = record.fields->find("body");
      if (body != record.fields->end() && body->is_object()) add(*body, config.usual_new_tokens, most);
    };
    dataset.for_each({border(world.rank()), border(world.rank() + 1)}, visit, context.stop_poll());
  });
  leave_if_stopped(world, context.stop);
  return {world.max(most.new_tokens), world.max(most.texts), world.max(most.top_logprobs)};
}

}  // namespace magister
