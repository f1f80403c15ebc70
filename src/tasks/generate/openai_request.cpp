// See openai_request.h. A key that is null counts as absent, as in the protocol. Keys that would change a text and are
// not computed are faults with their names.
#include "tasks/generate/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "magister/core/error.h"
#include "magister/core/units_of_measure.h"
#include "magister/io/dataset/record_json.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

// Keys that are read elsewhere or that concern the account of who asks, not the text.
constexpr std::array<std::string_view, 10> kWithoutEffect = {"model",
                                                             "seed",
                                                             "user",
                                                             "metadata",
                                                             "service_tier",
                                                             "safety_identifier",
                                                             "prompt_cache_key",
                                                             "prompt_cache_options",
                                                             "prompt_cache_retention",
                                                             "store"};
constexpr std::array<std::string_view, 3> kOfChats = {"messages", "tools", "tool_choice"};
constexpr double kGreedyBelow = 1e-5;  // as for the task's own temperature

template <typename Keys>
bool is_among(const Keys& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

class BodyReader {
 public:
  BodyReader(const Json& body, bool is_chat, std::vector<std::string>& faults)
      : body_(body), is_chat_(is_chat), faults_(faults) {}

  // Null if the key is absent or null. The key is known from now on.
  const Json* find(std::string_view key) {
    known_.push_back(key);
    const auto found = body_.find(key);
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }

  template <typename... Args>
  void refuse(std::string_view key, fmt::format_string<Args...> rest, Args&&... args) {
    faults_.push_back(fmt::format("body.{} {}", printable(key, 60), fmt::format(rest, std::forward<Args>(args)...)));
  }

  double number(std::string_view key, double usual, double least, double most) {
    const Json* const value = find(key);
    if (value == nullptr) return usual;
    const double number = value->is_number() ? value->get<double>() : least - 1;
    if (number >= least && number <= most) return number;
    refuse(key, "is {} (a number from {} to {} is computed); write one, or remove it", shown(*value), least, most);
    return usual;
  }

  std::int64_t integer(std::string_view key, std::int64_t usual, const RequestRange& range) {
    const auto& [least, most] = range;
    const Json* const value = find(key);
    if (value == nullptr) return usual;
    if (value->is_number_integer() && value->get<std::int64_t>() >= least && value->get<std::int64_t>() <= most)
      return value->get<std::int64_t>();
    refuse(key, "is {} (a whole number from {} to {} is computed); write one, or remove it", shown(*value), least,
           most);
    return usual;
  }

  bool boolean(std::string_view key) {
    const Json* const value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) refuse(key, "is {} (it is true or false); write one of them", shown(*value));
    return value->is_boolean() && value->get<bool>();
  }

  // Refuses every key that was not asked for.
  void refuse_others() {
    for (const auto& [key, value] : body_.items()) {
      const bool known = is_among(known_, key) || changes_no_settings(key, is_chat_);
      if (known || value.is_null()) continue;
      if (key == "chat_template_kwargs")
        refuse(key, "is not read (all chats of a task have the same); set model.chat_template_kwargs");
      else
        refuse(key, "is not computed here (it would be ignored); remove it");
    }
  }

  static std::string shown(const Json& value) { return printable(record_text(value), 60); }

 private:
  const Json& body_;
  const bool is_chat_;
  std::vector<std::string>& faults_;
  std::vector<std::string_view> known_;
};

void read_lengths(BodyReader& reader, const GenerateConfig& usual, RequestSettings& settings) {
  const auto most = static_cast<std::int64_t>(usual.max_new_tokens.tokens());
  constexpr std::int64_t kNone = kAskedTokens.most + 1;
  std::int64_t asked = kNone;
  const char* least = "";
  for (const char* const key : {"max_tokens", "max_completion_tokens"}) {
    if (!settings.is_chat && std::string_view(key) != "max_tokens") continue;
    const std::int64_t number = reader.integer(key, kNone, kAskedTokens);
    if (number < asked) least = key;
    asked = std::min(asked, number);
  }
  settings.max_new_tokens = std::min(asked, most);
  if (asked == kNone || asked <= most) return;
  if (usual.max_new_tokens.is_written())
    reader.refuse(least, "is {} (max_new_tokens of the task is {}); raise that, or leave it out", asked, most);
  else
    reader.refuse(least, "is {} (after a prompt of {} the model has positions for {}); lower it", asked,
                  format_count(usual.max_prompt_length.tokens(), "token"),
                  format_count(static_cast<std::uint64_t>(most), "token"));
}

void read_numbers(BodyReader& reader, const GenerateConfig& usual, RequestSettings& settings) {
  SamplingParams& sampling = settings.sampling = usual.sampling;
  sampling.temperature = reader.number("temperature", sampling.temperature, 0.0, 100.0);
  if (sampling.temperature < kGreedyBelow) sampling.temperature = 0;
  sampling.top_p = reader.number("top_p", sampling.top_p, 1e-9, 1.0);
  sampling.min_p = reader.number("min_p", sampling.min_p, 0.0, 1.0);
  sampling.top_k = std::max<std::int64_t>(0, reader.integer("top_k", sampling.top_k, {-1, 1 << 24}));
  sampling.repetition_penalty = reader.number("repetition_penalty", sampling.repetition_penalty, 0.01, 100.0);
  for (const char* const key : {"frequency_penalty", "presence_penalty"}) {
    const Json* const value = reader.find(key);
    if (value != nullptr && *value != 0)
      reader.refuse(key, "is {} (only repetition_penalty is computed); remove it", BodyReader::shown(*value));
  }
  if (reader.boolean("stream")) reader.refuse("stream", "is true (a batch has no stream); remove it");
}

void read_number_of_texts(BodyReader& reader, const GenerateConfig& usual, RequestSettings& settings) {
  const bool n_is_written = usual.n_key.is_written();
  const auto n = static_cast<std::uint64_t>(
      reader.integer("n", n_is_written ? static_cast<std::int64_t>(usual.n) : 1, kAskedTexts));
  settings.texts = std::min(n, usual.n);
  if (n > usual.n) reader.refuse("n", "is {} (n of the task is {}); raise that, or leave it out", n, usual.n);
  if (n > usual.best_of)
    reader.refuse("n", "is {} (best_of of the task is {}); raise that, or lower n", n, usual.best_of);
  const std::uint64_t drawn = usual.best_of_is_written ? usual.best_of : n;
  if (drawn > 1 && settings.sampling.temperature == 0)
    reader.refuse("temperature", "is 0 where {} texts are drawn (all would be the same); raise it", drawn);
}

void read_logit_bias(BodyReader& reader, std::int64_t vocab_size, RequestSettings& settings) {
  const Json* const all = reader.find("logit_bias");
  if (all == nullptr) return;
  if (!all->is_object())
    return reader.refuse("logit_bias", "is {} (it is an object of token ids and numbers); write one",
                         BodyReader::shown(*all));
  auto& known = settings.sampling.logit_bias;
  for (const auto& [token, bias] : all->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), id);
    const bool is_id = error == std::errc() && end == token.data() + token.size() && id >= 0 && id < vocab_size;
    if (!is_id || !bias.is_number() || !(std::abs(bias.get<double>()) <= 100)) {
      reader.refuse("logit_bias",
                    "has {}: {} (it takes ids below {} and numbers from -100 to 100); write such, or remove it",
                    printable(token, 40), BodyReader::shown(bias), vocab_size);
      continue;
    }
    std::erase_if(known, [id](const auto& entry) { return entry.first == id; });
    known.emplace_back(id, bias.get<float>());
  }
}

void read_stop(BodyReader& reader, RequestSettings& settings) {
  const Json* const stop = reader.find("stop");
  if (stop == nullptr) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  for (const Json& text : list) {
    if (text.is_string() && !text.get_ref<const std::string&>().empty())
      settings.stop.push_back(text.get<std::string>());
    else
      reader.refuse("stop", "has {} (a stop is a text that is not empty); write one, or remove it",
                    BodyReader::shown(text));
  }
}

// A chat asks with a yes and a number; logprobs of /v1/completions is the number.
void read_logprobs(BodyReader& reader, const GenerateConfig& usual, RequestSettings& settings) {
  const char* const key = settings.is_chat ? "top_logprobs" : "logprobs";
  settings.logprobs = settings.is_chat ? reader.boolean("logprobs") : reader.find("logprobs") != nullptr;
  const std::int64_t top = reader.integer(key, 0, kAskedTops);
  settings.top_logprobs = static_cast<std::uint64_t>(top);
  if (top > 0 && !settings.logprobs)
    reader.refuse("top_logprobs", "is {} without logprobs: true (nothing would be written); add it", top);
  if (settings.top_logprobs > usual.top_logprobs)
    reader.refuse(key, "is {} (top_logprobs of the task is {}); raise that, or leave it out", top, usual.top_logprobs);
}

void read_response_format(BodyReader& reader, const GenerateConfig& usual, RequestSettings& settings) {
  const Json* const format = reader.find("response_format");
  if (format == nullptr) return;
  const std::string type = format->is_object() ? format->value("type", Json()).dump() : "";
  if (type == "\"text\"") return;
  if (type == "\"json_object\"") {
    settings.schema = R"({"type": "object"})";
  } else if (type == "\"json_schema\"" && format->contains("json_schema") && (*format)["json_schema"].is_object() &&
             (*format)["json_schema"].contains("schema") && (*format)["json_schema"]["schema"].is_object()) {
    settings.schema = (*format)["json_schema"]["schema"].dump(-1, ' ', false, Json::error_handler_t::replace);
  } else {
    return reader.refuse("response_format",
                         "is {} (text, json_object, and json_schema with a schema are computed); write one of them",
                         BodyReader::shown(*format));
  }
  if (usual.constraint)
    reader.refuse("response_format", "is given where the task has a constraint (a text keeps to one); remove one");
  if (!settings.stop.empty() || !usual.stop.empty())
    reader.refuse("response_format",
                  "is given together with a stop text (texts would end before they are complete); "
                  "remove one of them");
  if (usual.ignore_eos && usual.stop_tokens.empty())
    reader.refuse("response_format",
                  "is given where the task has ignore_eos (a complete text could not end); remove "
                  "one of them");
}

// Keys of /v1/completions that change nothing as long as they have their usual values.
void read_completion(BodyReader& reader, const RequestSettings& settings) {
  if (reader.boolean("echo")) reader.refuse("echo", "is true (an answer is the text alone); remove it");
  const Json *const suffix = reader.find("suffix"), *const best_of = reader.find("best_of");
  if (suffix != nullptr && *suffix != "")
    reader.refuse("suffix", "is {} (a text is written from its beginning alone); remove it",
                  BodyReader::shown(*suffix));
  if (best_of != nullptr && *best_of != settings.texts)
    reader.refuse("best_of",
                  "is {} where {} are written (texts are chosen for a task alone, by its best_of); remove it",
                  BodyReader::shown(*best_of), format_count(settings.texts, "text"));
}

}  // namespace

bool changes_no_settings(std::string_view key, bool is_chat) {
  return is_among(kWithoutEffect, key) || (is_chat ? is_among(kOfChats, key) : key == "prompt");
}

RequestSettings read_request_settings(const Json& body, bool is_chat, const GenerateConfig& usual,
                                      std::int64_t vocab_size, std::vector<std::string>& faults) {
  RequestSettings settings;
  settings.is_chat = is_chat;
  BodyReader reader(body, is_chat, faults);
  read_lengths(reader, usual, settings);
  read_numbers(reader, usual, settings);
  read_number_of_texts(reader, usual, settings);
  read_logit_bias(reader, vocab_size, settings);
  read_stop(reader, settings);
  read_logprobs(reader, usual, settings);
  read_response_format(reader, usual, settings);
  if (!is_chat) read_completion(reader, settings);
  if (usual.constraint && !settings.stop.empty())
    reader.refuse("stop",
                  "is given where the task has a constraint (texts would end before they are complete); "
                  "remove one of them");
  reader.refuse_others();
  return settings;
}

const Json* body_of_request(const Json& record, std::vector<std::string>& faults) {
  const auto is_text = [&](const char* key, const char* expected) {
    return record.contains(key) && record[key].is_string() &&
           (expected == nullptr || record[key].get_ref<const std::string&>() == expected);
  };
  if (!is_text("custom_id", nullptr) || record["custom_id"].get_ref<const std::string&>().empty())
    faults.emplace_back("custom_id is no text (the answer is found by it); give each request its own");
  if (!is_text("method", "POST")) faults.emplace_back("method is not \"POST\" (no other is answered); write it");
  if (!is_text("url", "/v1/chat/completions") && !is_text("url", "/v1/completions"))
    faults.emplace_back(
        "url is neither \"/v1/chat/completions\" nor \"/v1/completions\" (no other is answered); write such a "
        "request, or remove the line");
  for (const auto& [key, value] : record.items()) {
    if (key != "custom_id" && key != "method" && key != "url" && key != "body")
      faults.push_back(fmt::format("{} is no key of a request (it would be ignored); remove it", printable(key, 60)));
  }
  const auto body = record.find("body");
  if (body == record.end() || !body->is_object()) {
    faults.emplace_back("body is no object (it holds the chat or the prompt); give the request one");
    return nullptr;
  }
  if (body->contains("model") && !(*body)["model"].is_string())
    faults.emplace_back("body.model is no text (the answer repeats it); write a name");
  if (body->contains("seed") && !(*body)["seed"].is_null() && !(*body)["seed"].is_number_integer())
    faults.emplace_back("body.seed is no whole number of 64 bits (draws begin with it); write one, or remove it");
  return &*body;
}

}  // namespace magister
