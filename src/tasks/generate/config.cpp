// The keys of `task: generate`, in the order in which the resolved experiment shows them. The task itself checks what
// depends on the model: token ids against the vocabulary, lengths against the positions.
#include "tasks/generate/config.h"

#include "magister/core/error.h"
#include "magister/runtime/sampling_config.h"

namespace magister {
namespace {

// A count with this default; requests may set one that is not written.
std::uint64_t read_asked(ConfigNode& node, const std::string& name, LengthKey& key, std::uint64_t usual,
                         std::int64_t least, std::int64_t most) {
  if (!node.has("requests")) return node.count(name, static_cast<std::int64_t>(usual), least, most);
  key = LengthKey(node, name, usual, least, most);
  return key.tokens();
}

// The numbers of texts that are written and kept per record.
void read_counts(ConfigNode& node, GenerateConfig& config) {
  config.n = read_asked(node, "n", config.n_key, 1, 1, 4096);
  const auto best_of = node.optional_integer("best_of", 1, 4096);
  config.best_of_is_written = best_of.has_value();
  config.best_of = best_of ? static_cast<std::uint64_t>(*best_of) : config.n;
  if (config.best_of < config.n) {
    node.reject("best_of", "{} texts, of which n = {} are to stay (there are not as many); raise best_of or lower n",
                config.best_of, config.n);
  }
}

std::vector<LogitBias> read_logit_bias(ConfigNode& node) {
  std::vector<LogitBias> all;
  for (ConfigNode& entry : node.optional_sections("logit_bias")) {
    LogitBias bias;
    const auto token = entry.optional_text("token");
    const auto id = entry.optional_integer("id", 0, 1 << 30);
    if (entry.has("token") == entry.has("id")) {
      entry.reject("", "{} (the bias belongs to one token); write token: its text, or id: its number",
                   token ? "token and id in one entry" : "neither token nor id");
    }
    bias.token = token.value_or("");
    bias.id = id ? static_cast<TokenId>(*id) : -1;
    bias.bias = static_cast<float>(entry.number("bias", -1000.0, 1000.0));
    bias.place = entry.place();
    all.push_back(std::move(bias));
  }
  return all;
}

// Reads `prompt`, `chat_template` and the data set, whose fields the prompt reads if there is one.
void read_records(ConfigNode& node, const ExperimentConfig& experiment, GenerateConfig& config) {
  std::optional<ConfigNode> prompt = node.optional_section("prompt");
  config.dataset = read_dataset(node, false, &experiment);
  if (prompt) {
    ConfigNode dataset = node.section("dataset");
    for (const char* const key : {"text", "messages", "tokens"}) {
      if (dataset.has(key))
        dataset.reject(key, "is given together with `prompt` (which names the fields itself); remove one of them");
    }
    dataset.identity_alone("text");
    config.dataset.whole_record = true;
    config.dataset.messages_field.clear();
    config.dataset.tokens_field.clear();
    const std::string system = prompt->optional_text("system").value_or("");
    config.prompt = {system, prompt->text("user")};
  }
  ConfigNode of_prompt =
      node.only_if(prompt.has_value(),
                   "is given without `prompt` (texts and ids are taken as they are, and chats always have a "
                   "template); remove it");
  config.use_chat_template = of_prompt.choice("chat_template", {"auto", "off"}, "auto") == "auto";
}

// Records that are requests name their chat, their key and what decides their texts.
void read_requests(ConfigNode& node, GenerateConfig& config) {
  config.requests = node.later_choice("requests", {"none", "openai_batch"}) == "openai_batch";
  if (!config.requests) {
    config.take({config.max_new_tokens.usual(), config.n, config.top_logprobs});
    return;
  }
  for (const char* const key : {"prompt", "guide"}) {
    if (node.has(key))
      node.reject(key,
                  "is given where the records are requests (each brings its own chat, and no value model guides "
                  "it); remove it or `requests`");
  }
  ConfigNode dataset = node.section("dataset");
  for (const char* const key : {"text", "messages", "tools", "tokens", "key", "task", "sources"}) {
    if (dataset.has(key))
      dataset.reject(key,
                     "is given where the records are requests (chat and key are theirs: body.messages and "
                     "custom_id; they are files); remove it or `requests`");
  }
  dataset.identity_alone("text");
  config.dataset.whole_record = true;
  config.dataset.tokens_field.clear();
  config.dataset.messages_field = "body.messages";
  config.dataset.key_field = "custom_id";
}

// A constraint ends a text when it is complete; no other end is allowed.
void refuse_other_ends(ConfigNode& node, const GenerateConfig& config) {
  if (!config.constraint) return;
  if (!config.stop.empty()) {
    node.reject(
        "stop",
        "a stop text together with a constraint (texts would end before they are complete); remove one of them");
  }
  if (config.ignore_eos && config.stop_tokens.empty()) {
    node.reject("ignore_eos",
                "true together with a constraint (a complete text could not end); remove it or name stop_tokens");
  }
}

// Names of the other keys in transformers, vLLM and the OpenAI protocol.
void declare_other_names(ConfigNode& node) {
  declare_engine_names(node);
  node.also_called("n", {"num_return_sequences", "num_samples", "num_completions"});
  node.also_called("prompt", {"prompt_template", "template", "system_prompt"});
  node.also_called("top_logprobs", {"logprobs", "num_logprobs"});
  node.also_called("constraint",
                   {"guided_decoding", "structured_outputs", "response_format", "guided_json", "guided_regex",
                    "guided_choice", "guided_grammar", "grammar", "json_schema", "regex"});
  node.also_called("stop_tokens", {"stop_token_ids", "eos_token_id"});
}

}  // namespace

void GenerateConfig::take(const MostAsked& asked) {
  if (requests) max_new_tokens.ask(asked.new_tokens);
  // A request without n asks for one text, unless n is written: `auto` stays in the identity, which tells these apart.
  if (!requests) n_key.become(asked.texts);
  top_logprobs_key.become(asked.top_logprobs);
  if (!n_key.is_written()) n = asked.texts;
  if (!best_of_is_written) best_of = n;
  if (!top_logprobs_key.is_written()) top_logprobs = asked.top_logprobs;
}

GenerateConfig read_generate_config(ConfigNode& node, const ExperimentConfig& experiment) {
  GenerateConfig config;
  config.name = read_task_name(node, "answers");
  config.seed = experiment.seed;
  config.model = read_task_model(node, experiment);
  read_records(node, experiment, config);
  static_cast<TextLengths&>(config) = read_text_lengths(node);
  config.usual_new_tokens = config.max_new_tokens.usual();
  read_counts(node, config);
  config.sampling = read_sampling(node);
  config.logit_bias = read_logit_bias(node);
  config.top_logprobs = read_asked(node, "top_logprobs", config.top_logprobs_key, 0, 0, 20);
  config.top_logprobs_place = node.place("top_logprobs");
  config.stop_tokens_place = node.place("stop_tokens");
  config.constraint = read_constraint(node);
  config.guide = read_guide(node, experiment);
  if (config.best_of > 1 && config.sampling.temperature == 0.0) {
    node.reject(config.n > 1 ? "n" : "best_of",
                "{} texts per record at temperature 0 (all of them would be the same); raise the "
                "temperature or remove it",
                config.best_of);
  }
  config.stop = node.optional_texts("stop");
  for (const std::int64_t id : node.optional_integers("stop_tokens", 0, 1 << 30))
    config.stop_tokens.push_back(static_cast<TokenId>(id));
  config.ignore_eos = node.boolean("ignore_eos", false);
  read_requests(node, config);
  static_cast<BatchKeys&>(config) = read_batch_keys(node, 512);
  refuse_other_ends(node, config);
  declare_other_names(node);
  return config;
}

}  // namespace magister
