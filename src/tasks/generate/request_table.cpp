// Requests to the same path with the same text of all keys that change a text, without prompt and seed, share a
// RequestKind, whose keys are read once.
#include "tasks/generate/request_table.h"

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "magister/core/error.h"
#include "magister/io/dataset/record_json.h"
#include "tasks/generate/request_prompts.h"
#include "tasks/generate/schema_keywords.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostFaults = 20;  // shown; a file may have thousands
constexpr std::size_t kMostSchemas = 1000;

struct KnownKind {
  std::uint32_t index = 0;
  std::vector<std::string> faults;
};

// The keys that requests share, as one text.
std::string shared_keys(const Json& body, bool is_chat) {
  Json rest = Json::object();
  for (const auto& [key, value] : body.items())
    if (!value.is_null() && !changes_no_settings(key, is_chat)) rest[key] = value;
  return (is_chat ? "chat " : "text ") + record_text(rest);
}

std::shared_ptr<const Constraint> compiled(const std::string& schema, const StopRules& ends, const Tokenizer& tokenizer,
                                           std::int64_t vocab_size, std::vector<std::string>& faults) {
  ConstraintRule rule;
  rule.kind = ConstraintRule::Kind::kJsonSchema;
  rule.text = schema;
  rule.name = "body.response_format";
  try {
    check_schema_keywords(rule.text, rule.name);
    return compile_constraint(rule, tokenizer, ends.tokens, vocab_size);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kConfig) throw;
    faults.emplace_back(error.what());
    return nullptr;
  }
}

class Reader {
 public:
  Reader(const GenerateConfig& usual, const StopRules& ends, const Tokenizer& tokenizer, std::int64_t vocab_size,
         bool chat_tools)
      : usual_(usual), ends_(ends), tokenizer_(tokenizer), vocab_size_(vocab_size), chat_tools_(chat_tools) {}

  // The number of the record's kind; adds what is wrong with the record.
  std::uint32_t read(const Record& record, std::vector<std::unique_ptr<RequestKind>>& kinds,
                     std::optional<std::uint64_t>& seed) {
    std::vector<std::string> faults;
    const Json* const body = body_of_request(*record.fields, faults);
    std::uint32_t index = 0;
    if (body != nullptr) {
      const bool is_chat = is_chat_request(*record.fields);
      check_prompt(*body, is_chat, chat_tools_, faults);
      const auto [found, is_new] = known_.try_emplace(shared_keys(*body, is_chat));
      if (is_new) found->second = make(*body, is_chat, kinds);
      index = found->second.index;
      faults.insert(faults.end(), found->second.faults.begin(), found->second.faults.end());
      if (const auto own = body->find("seed"); own != body->end() && own->is_number_integer())
        seed = own->get<std::uint64_t>();
    }
    if (!keys_.insert(record.key).second)
      faults.push_back(fmt::format("custom_id {} is that of an earlier line (answers are found by it); change one",
                                   printable(record.key, 60)));
    for (const std::string& fault : faults) {
      if (++num_faults_ <= kMostFaults) message_ += fmt::format("\n{}: {}", record.where, fault);
    }
    return index;
  }

  void refuse_faults() const {
    if (num_faults_ == 0) return;
    const std::string more =
        num_faults_ > kMostFaults ? fmt::format("\n... and {} more", num_faults_ - kMostFaults) : std::string();
    throw Error(ExitCode::kData, message_.substr(1) + more);
  }

 private:
  KnownKind make(const Json& body, bool is_chat, std::vector<std::unique_ptr<RequestKind>>& kinds) {
    KnownKind known{static_cast<std::uint32_t>(kinds.size()), {}};
    auto kind = std::make_unique<RequestKind>();
    kind->settings = read_request_settings(body, is_chat, usual_, vocab_size_, known.faults);
    kind->stops = ends_;
    kind->stops.texts.insert(kind->stops.texts.end(), kind->settings.stop.begin(), kind->settings.stop.end());
    if (const std::string& schema = kind->settings.schema; !schema.empty()) {
      kind->stops.constrained = true;
      auto [found, is_new] = constraints_.try_emplace(schema);
      if (is_new && constraints_.size() > kMostSchemas)
        known.faults.push_back(
            fmt::format("body.response_format is schema number {} of this file (each takes memory); "
                        "write files of at most {}",
                        constraints_.size(), kMostSchemas));
      else if (is_new)
        found->second = compiled(schema, kind->stops, tokenizer_, vocab_size_, known.faults);
      kind->constraint = found->second;
    }
    kinds.push_back(std::move(kind));
    return known;
  }

  const GenerateConfig& usual_;
  const StopRules& ends_;
  const Tokenizer& tokenizer_;
  const std::int64_t vocab_size_;
  const bool chat_tools_;
  std::unordered_map<std::string, KnownKind> known_;
  std::unordered_map<std::string, std::shared_ptr<const Constraint>> constraints_;
  std::unordered_set<std::string> keys_;
  std::string message_;
  std::size_t num_faults_ = 0;
};

}  // namespace

RequestTable::RequestTable(const Dataset& dataset, const GenerateConfig& usual, const StopRules& ends,
                           const Tokenizer& tokenizer, std::int64_t vocab_size, bool chat_tools, const StopPoll& poll)
    : first_(dataset.records().begin) {
  Reader reader(usual, ends, tokenizer, vocab_size, chat_tools);
  const auto add = [&](Record&& record) {
    std::optional<std::uint64_t> seed;
    kinds_of_records_.push_back(reader.read(record, kinds_, seed));
    seeds_.push_back(seed);
    if (kinds_.empty()) return;
    num_texts_ += kinds_[kinds_of_records_.back()]->settings.texts;
    has_chats_ = has_chats_ || is_chat_request(*record.fields);
  };
  dataset.for_each(dataset.records(), add, poll);
  reader.refuse_faults();
}

}  // namespace magister
