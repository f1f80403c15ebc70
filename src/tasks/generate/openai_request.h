// A request of an OpenAI batch file: the keys of its body that decide a text, read against the keys of the task.
// Source: the Batch API's input file (custom_id, method, url, body) and the bodies of POST /v1/chat/completions and
// POST /v1/completions, with the further sampling keys of vLLM (top_k, min_p, repetition_penalty).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "magister/engine/sampler.h"
#include "tasks/generate/config.h"

namespace magister {

// The whole numbers that a request may ask for.
struct RequestRange {
  std::int64_t least = 0, most = 0;
};
inline constexpr RequestRange kAskedTokens{1, 1 << 20}, kAskedTexts{1, 4096}, kAskedTops{0, 20};

// Everything that requests may have in common: all keys but the seed, the model's name and the prompt.
struct RequestSettings {
  bool is_chat = true;              // false: of /v1/completions
  SamplingParams sampling;          // of the task, with the request's keys in place of its own
  std::int64_t max_new_tokens = 0;  // at most the task's
  std::uint64_t texts = 1;          // at most the task's n
  std::vector<std::string> stop;    // of the request; the task's count, too
  std::string schema;               // a JSON schema of the text; empty: none
  bool logprobs = false;            // the answer has log-probabilities
  std::uint64_t top_logprobs = 0;   // with logprobs: number of alternatives of each token; at most the task's
};

// True for a key that concerns the account of who asks, or that is read elsewhere: it changes no settings.
bool changes_no_settings(std::string_view key, bool is_chat);

// usual: the task's keys, whose sampling has the rules of the model. vocab_size: of the model. Each fault is appended
// as "body.top_p is 2 (why); what to do". Local, pure.
RequestSettings read_request_settings(const nlohmann::ordered_json& body, bool is_chat, const GenerateConfig& usual,
                                      std::int64_t vocab_size, std::vector<std::string>& faults);

// Faults of the frame around the body: custom_id, method, url and other keys. Returns the body, whose prompt and
// messages check_prompt() checks; null if it is none.
const nlohmann::ordered_json* body_of_request(const nlohmann::ordered_json& record, std::vector<std::string>& faults);

}  // namespace magister
