// Keys and defaults are those of GenerationConfig of transformers 5.24; its validation of lists is kept, too.
#include "magister/runtime/generation_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
constexpr std::uintmax_t kMaxRulesBytes = 16 << 20;

// The value with which a key has no effect; null never has one.
struct Neutral {
  const char* key;
  ordered_json value;
};

const std::vector<Neutral>& sampling_keys() {
  static const std::vector<Neutral> keys = {{"do_sample", false},
                                            {"temperature", 1},
                                            {"top_k", 0},
                                            {"top_p", 1},
                                            {"min_p", 0},
                                            {"typical_p", 1},
                                            {"top_h", 1},
                                            {"epsilon_cutoff", 0},
                                            {"eta_cutoff", 0},
                                            {"repetition_penalty", 1},
                                            {"max_length", 20},
                                            {"max_new_tokens", 0},
                                            {"num_return_sequences", 1}};
  return keys;
}

const std::vector<Neutral>& foreign_keys() {
  static const std::vector<Neutral> keys = {{"num_beams", 1},
                                            {"num_beam_groups", 1},
                                            {"diversity_penalty", 0},
                                            {"penalty_alpha", 0},
                                            {"dola_layers", {}},
                                            {"guidance_scale", 1},
                                            {"encoder_repetition_penalty", 1},
                                            {"encoder_no_repeat_ngram_size", 0},
                                            {"exponential_decay_length_penalty", {}},
                                            {"forced_decoder_ids", {}},
                                            {"force_words_ids", {}},
                                            {"constraints", {}},
                                            {"watermarking_config", {}},
                                            {"stop_strings", {}},
                                            {"token_healing", false},
                                            {"max_time", {}}};
  return keys;
}

class KeysReader {
 public:
  KeysReader(const ordered_json& object, std::string file, std::int64_t vocab_size, std::int64_t table_rows)
      : object_(object), file_(std::move(file)), vocab_size_(vocab_size), table_rows_(table_rows) {}

  GenerationConfig read() {
    ModelRules& rules = config_.rules;
    if (const ordered_json* given = find("sequence_bias")) read_sequence_bias(*given);
    rules.no_repeat_ngram_size = count("no_repeat_ngram_size");
    if (const ordered_json* given = find("bad_words_ids")) read_bad_words(*given);
    rules.min_length = count("min_length");
    rules.min_new_tokens = count("min_new_tokens");
    if (find("min_new_tokens") != nullptr) rules.min_length = 0;  // as in the reference
    if (const ordered_json* given = find("forced_bos_token_id")) {
      rules.forced_first = id_of("forced_bos_token_id", *given);
      if (has_no_output(*rules.forced_first)) refuse("forced_bos_token_id", *given, "a token of the head's outputs");
      config_.obeyed.emplace_back("forced_bos_token_id");
    }
    rules.forced_last = ids("forced_eos_token_id");
    rules.suppressed = ids("suppress_tokens");
    rules.suppressed_first = ids("begin_suppress_tokens");
    if (rules.forced_first) check_forced("forced_bos_token_id", {*rules.forced_first});
    check_forced("forced_eos_token_id", rules.forced_last);
    for (const Neutral& one : sampling_keys()) {
      if (says(one))
        config_.not_taken.push_back(fmt::format("{} {}", one.key, printable(object_.at(one.key).dump(), 80)));
    }
    for (const Neutral& one : foreign_keys()) {
      if (says(one)) config_.not_computed.emplace_back(one.key);
    }
    return std::move(config_);
  }

 private:
  const ordered_json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  bool says(const Neutral& one) const {
    const ordered_json* given = find(one.key);
    if (given == nullptr || *given == one.value) return false;
    return !given->is_structured() || !given->empty();
  }

  [[noreturn]] void refuse(const char* key, const ordered_json& value, const char* expected) const {
    fail(ExitCode::kData,
         "{}: {} is {} (it says which tokens a text may have, and {} is expected); correct it, or remove the key",
         file_, key, printable(value.dump(), 120), expected);
  }

  std::int64_t count(const char* key) {
    const ordered_json* given = find(key);
    if (given == nullptr) return 0;
    if (!given->is_number_integer() || *given < 0 || *given > 1'000'000'000) refuse(key, *given, "a number of tokens");
    if (*given > 0) config_.obeyed.emplace_back(key);
    return given->get<std::int64_t>();
  }

  TokenId id_of(const char* key, const ordered_json& value) const {
    if (!value.is_number_integer() || value < 0 || value >= table_rows_)
      refuse(key, value, fmt::format("a token of the vocabulary of {}", table_rows_).c_str());
    return value.get<TokenId>();
  }

  // Such a token is in no text anyway.
  bool has_no_output(TokenId id) const { return id >= vocab_size_; }

  // As in the reference: if suppress_tokens bars all forced tokens, no token would be left.
  void check_forced(const char* key, const std::vector<TokenId>& forced) const {
    const std::vector<TokenId>& barred = config_.rules.suppressed;
    const bool is_barred = !forced.empty() && std::all_of(forced.begin(), forced.end(), [&](TokenId id) {
      return std::find(barred.begin(), barred.end(), id) != barred.end();
    });
    if (is_barred) refuse(key, object_.at(key), "a token that suppress_tokens does not bar");
  }

  // Reads a list, or one token.
  std::vector<TokenId> ids(const char* key) {
    const ordered_json* given = find(key);
    std::vector<TokenId> all;
    if (given == nullptr) return all;
    if (given->is_array()) {
      for (const ordered_json& one : *given) all.push_back(id_of(key, one));
    } else {
      all.push_back(id_of(key, *given));
    }
    std::erase_if(all, [&](TokenId id) { return has_no_output(id); });
    if (!all.empty()) config_.obeyed.emplace_back(key);
    return all;
  }

  std::vector<TokenId> sequence(const char* key, const ordered_json& value) const {
    if (!value.is_array() || value.empty()) refuse(key, value, "a list of tokens");
    std::vector<TokenId> all;
    for (const ordered_json& one : value) all.push_back(id_of(key, one));
    return all;
  }

  void read_bad_words(const ordered_json& given) {
    constexpr const char* kKey = "bad_words_ids";
    if (!given.is_array()) refuse(kKey, given, "a list of lists of tokens");
    for (const ordered_json& one : given) {
      std::vector<TokenId> tokens = sequence(kKey, one);
      if (!has_no_output(tokens.back())) config_.rules.bad_words.push_back(std::move(tokens));
    }
    if (!given.empty()) config_.obeyed.emplace_back(kKey);
  }

  // If two entries have the same sequence, the later one counts.
  void read_sequence_bias(const ordered_json& given) {
    constexpr const char* kKey = "sequence_bias";
    constexpr const char* kPairs = "a list of pairs, each a list of tokens and a number,";
    if (!given.is_array()) refuse(kKey, given, kPairs);
    auto& all = config_.rules.sequence_bias;
    for (const ordered_json& one : given) {
      if (!one.is_array() || one.size() != 2 || !one.at(1).is_number()) refuse(kKey, one, kPairs);
      std::vector<TokenId> tokens = sequence(kKey, one.at(0));
      const auto same = std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.first == tokens; });
      const auto bias = one.at(1).get<float>();
      if (has_no_output(tokens.back())) continue;
      if (same != all.end()) {
        same->second = bias;
      } else {
        all.emplace_back(std::move(tokens), bias);
      }
    }
    if (!all.empty()) config_.obeyed.emplace_back(kKey);
  }

  const ordered_json& object_;
  std::string file_;
  std::int64_t vocab_size_, table_rows_;
  GenerationConfig config_;
};

}  // namespace

std::string GenerationConfig::describe() const {
  std::string line;
  if (!obeyed.empty()) line = fmt::format("applied: {}", fmt::join(obeyed, ", "));
  if (!not_taken.empty())
    line += fmt::format("{}not taken, since the task's keys decide how to sample: {}", line.empty() ? "" : "; ",
                        fmt::join(not_taken, ", "));
  return line;
}

GenerationConfig read_generation_config(const std::string& model_folder, std::int64_t vocab_size,
                                        std::int64_t table_rows) {
  const fs::path path = fs::path(model_folder) / "generation_config.json";
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  const std::string name = printable(path.string(), 4096);
  const ordered_json object = ordered_json::parse(
      read_whole_file(path, kMaxRulesBytes, "it says which tokens a text may have"), nullptr, false);
  MAGISTER_CHECK(object.is_object(), ExitCode::kData,
                 "{}: is no JSON object (it says which tokens a text may have); fetch the file again", name);
  return KeysReader(object, name, vocab_size, table_rows).read();
}

}  // namespace magister
