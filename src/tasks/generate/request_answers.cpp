// See request_answers.h. Source of the form: OpenAI's Batch API, output file; ChatCompletion and Completion of its
// Python package.
#include "tasks/generate/request_answers.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "magister/core/error.h"
#include "magister/core/utf8.h"
#include "magister/io/dataset/record_json.h"
#include "magister/io/results/reader.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kChatUrl = "/v1/chat/completions";
constexpr const char* kCompletionUrl = "/v1/completions";
constexpr double kLeastLogprob = -9999.0;  // stands for minus infinity in that form

std::string text_of_json(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The shortest decimal that reads back as the same f32.
double shown(float logprob) { return std::isfinite(logprob) ? std::stod(fmt::format("{}", logprob)) : kLeastLogprob; }

Json logprob_of(TokenId id, float logprob, const Tokenizer& tokenizer) {
  const std::string bytes(tokenizer.token_bytes(id));
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return {{"token", bytes}, {"logprob", shown(logprob)}, {"bytes", std::move(numbers)}};
}

// The slots of one record's texts.
struct Slots {
  std::vector<std::uint32_t> lengths;
  std::vector<TokenId> ids, top_ids;
  std::vector<float> logprobs, top_logprobs;
};

template <typename T>
std::vector<T> row_of(const ResultsFile& file, const Column<T>& column, std::uint64_t record, std::uint64_t width) {
  std::vector<T> values(width);
  file.read(column.path, record, std::as_writable_bytes(std::span(values)));
  return values;
}

Slots slots_of(const ResultsFile& running, const GenerateShape& shape, std::uint64_t record) {
  using namespace generate_column;
  const std::uint64_t width = shape.texts * shape.slots;
  Slots slots;
  slots.lengths = row_of(running, kLength, record, shape.texts);
  slots.ids = row_of(running, kSlotId, record, width);
  slots.logprobs = row_of(running, kSlotLogprob, record, width);
  if (shape.top == 0) return slots;
  slots.top_ids = row_of(running, kSlotTopId, record, width * shape.top);
  slots.top_logprobs = row_of(running, kSlotTopLogprob, record, width * shape.top);
  return slots;
}

// The slots of a text without that of the token that ended it.
IndexRange written_slots(const Slots& slots, const GenerateShape& shape, std::uint64_t text, const RequestKind& kind) {
  const auto& ends = kind.stops.tokens;
  const std::uint64_t begin = text * shape.slots, end = begin + slots.lengths[text];
  const bool has_end = end > begin && std::find(ends.begin(), ends.end(), slots.ids[end - 1]) != ends.end();
  return {begin, end - (has_end ? 1 : 0)};
}

// Bytes as text: U+FFFD stands for each byte that is not UTF-8. characters: how many code points that is.
std::string readable(std::string_view bytes, std::uint64_t& characters) {
  std::string text;
  for (characters = 0; !bytes.empty(); ++characters) {
    const std::size_t length = utf8_sequence_length(bytes);
    text += length == 0 ? std::string_view("\xEF\xBF\xBD") : bytes.substr(0, length);
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text;
}

// As /v1/completions writes them: of tokens with the same text the likeliest stays in top_logprobs, which also have the
// written token. text_offset counts characters of the answer.
Json completion_logprobs(const Slots& slots, const GenerateShape& shape, std::uint64_t text, const RequestKind& kind,
                         const Tokenizer& tokenizer) {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  std::uint64_t offset = 0, characters = 0;
  const auto [begin, end] = written_slots(slots, shape, text, kind);
  for (std::uint64_t i = begin; i < end; ++i) {
    Json best = Json::object();
    for (std::uint64_t j = i * shape.top; j < i * shape.top + kind.settings.top_logprobs; ++j)
      best.emplace(readable(tokenizer.token_bytes(slots.top_ids[j]), characters), shown(slots.top_logprobs[j]));
    const std::string token = readable(tokenizer.token_bytes(slots.ids[i]), characters);
    best.emplace(token, shown(slots.logprobs[i]));
    tokens.push_back(token);
    logprobs.push_back(shown(slots.logprobs[i]));
    tops.push_back(std::move(best));
    offsets.push_back(offset);
    offset += characters;
  }
  if (kind.settings.top_logprobs == 0) tops = nullptr;
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json logprobs_of(const Slots& slots, const GenerateShape& shape, std::uint64_t text, const RequestKind& kind,
                 const Tokenizer& tokenizer) {
  if (!kind.settings.is_chat) return completion_logprobs(slots, shape, text, kind, tokenizer);
  Json content = Json::array();
  const auto [begin, end] = written_slots(slots, shape, text, kind);
  for (std::uint64_t i = begin; i < end; ++i) {
    Json token = logprob_of(slots.ids[i], slots.logprobs[i], tokenizer);
    token["top_logprobs"] = Json::array();
    for (std::uint64_t j = i * shape.top; j < i * shape.top + kind.settings.top_logprobs; ++j)
      token["top_logprobs"].push_back(logprob_of(slots.top_ids[j], slots.top_logprobs[j], tokenizer));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

}  // namespace

std::vector<TextColumn> request_columns(const ResultsFile& running, const GenerateShape& shape, const Dataset& dataset,
                                        const RequestTable& requests, const Tokenizer& tokenizer,
                                        const StopPoll& poll) {
  using namespace generate_column;
  const std::uint64_t num_texts = requests.num_texts();
  const auto models = [&dataset, &requests, &poll](const TextColumn::Visit& visit) {
    std::uint64_t index = 0;
    const auto give = [&](Record&& record) {
      const Json& body = record.fields->at("body");
      for (std::uint64_t text = requests.kind(index++).settings.texts; text > 0; --text)
        visit(body.value("model", std::string()));
    };
    dataset.for_each(dataset.records(), give, poll);
    return !poll();
  };
  const auto logprobs = [&running, &requests, &tokenizer, &poll, shape](const TextColumn::Visit& visit) {
    for (std::uint64_t record = 0; record < shape.num_records; ++record) {
      if (poll()) return false;
      const RequestKind& kind = requests.kind(record);
      const Slots slots = kind.settings.logprobs ? slots_of(running, shape, record) : Slots();
      for (std::uint64_t text = 0; text < kind.settings.texts; ++text)
        visit(kind.settings.logprobs ? text_of_json(logprobs_of(slots, shape, text, kind, tokenizer)) : std::string());
    }
    return true;
  };
  const auto urls = [&requests, &poll, shape](const TextColumn::Visit& visit) {
    for (std::uint64_t record = 0; record < shape.num_records; ++record) {
      if (poll()) return false;
      const RequestSettings& settings = requests.kind(record).settings;
      for (std::uint64_t text = 0; text < settings.texts; ++text) visit(settings.is_chat ? kChatUrl : kCompletionUrl);
    }
    return true;
  };
  std::vector<TextColumn> columns;
  columns.push_back({kRequestModel.spec(num_texts), models});
  columns.push_back({kRequestLogprobs.spec(num_texts), logprobs});
  columns.push_back({kRequestUrl.spec(num_texts), urls});
  return columns;
}

namespace {

// Unix seconds of the file's last change.
std::int64_t time_of(const std::string& path) {
  const auto changed = std::chrono::file_clock::to_sys(std::filesystem::last_write_time(path));
  return std::chrono::duration_cast<std::chrono::seconds>(changed.time_since_epoch()).count();
}

class BatchExport {
 public:
  explicit BatchExport(const ResultsReader& file)
      : file_(file), texts_(file, generate_column::kText.path), created_(time_of(file.path())) {
    if (file.find(generate_column::kRequestModel) != nullptr)
      models_.emplace(file, generate_column::kRequestModel.path);
    if (file.find(generate_column::kRequestLogprobs) != nullptr)
      logprobs_.emplace(file, generate_column::kRequestLogprobs.path);
    if (file.find(generate_column::kRequestUrl) != nullptr) urls_.emplace(file, generate_column::kRequestUrl.path);
  }

  void write(const TextSink& sink) {
    const std::uint64_t n = file_.num_samples();
    for (std::uint64_t first = 0; first < n;) {
      std::uint64_t end = first + 1;
      while (end < n && file_.rows(generate_column::kTextIndex, end, 1)[0] != 0) ++end;
      sink(text_of_json(line_of(first, end)) + "\n");
      first = end;
    }
  }

 private:
  // The answer whose texts are [first, end).
  Json line_of(std::uint64_t first, std::uint64_t end) {
    const std::string& run = file_.text("config_sha256");
    const auto number = file_.rows<std::uint64_t>("/samples/source_index", first, 1)[0];
    const std::string name = fmt::format("{}-{}", run.substr(0, 16), number);
    const auto offset = file_.rows<std::uint64_t>("/samples/offset", first, end - first + 1);
    const std::uint64_t written = offset.back() - offset.front(),
                        prompt = file_.rows(generate_column::kPromptTokens, first, 1)[0];
    Json choices = Json::array();
    const bool is_chat = !urls_ || urls_->text(first) != kCompletionUrl;
    for (std::uint64_t i = first; i < end; ++i) choices.push_back(choice(i, i - first, is_chat));
    Json body = {
        {"id", (is_chat ? "chatcmpl-" : "cmpl-") + name},
        {"object", is_chat ? "chat.completion" : "text_completion"},
        {"created", created_},
        {"model", models_ ? models_->text(first) : std::string()},
        {"choices", std::move(choices)},
        {"usage", {{"prompt_tokens", prompt}, {"completion_tokens", written}, {"total_tokens", prompt + written}}}};
    return {{"id", "batch_req_" + name},
            {"custom_id", key(first)},
            {"response", {{"status_code", 200}, {"request_id", "req_" + name}, {"body", std::move(body)}}},
            {"error", nullptr}};
  }

  Json choice(std::uint64_t i, std::uint64_t index, bool is_chat) {
    const std::string logprobs = logprobs_ ? logprobs_->text(i) : "";
    Json choice = {{"index", index}};
    if (is_chat)
      choice["message"] = {{"role", "assistant"}, {"content", texts_.text(i)}, {"refusal", nullptr}};
    else
      choice["text"] = texts_.text(i);
    choice["logprobs"] = logprobs.empty() ? Json() : Json::parse(logprobs);
    choice["finish_reason"] = file_.rows(generate_column::kFinishReason, i, 1)[0] == 0 ? "stop" : "length";
    return choice;
  }

  std::string key(std::uint64_t i) const {
    std::string key(file_.column("/samples/key", ColumnType::kUtf8).width, '\0');
    file_.read("/samples/key", i, std::as_writable_bytes(std::span(key)));
    key.resize(key.find_last_not_of('\0') + 1);
    return key;
  }

  const ResultsReader& file_;
  ResultsTextColumn texts_;
  std::optional<ResultsTextColumn> models_, logprobs_, urls_;  // absent: of other data sets than requests
  const std::int64_t created_;
};

}  // namespace

void export_openai_batch(const ResultsReader& file, const ExportedColumns&, const std::string& out) {
  MAGISTER_CHECK(file.find(generate_column::kText) != nullptr && file.find(generate_column::kPromptTokens) != nullptr,
                 ExitCode::kData,
                 "{}: holds no answers to requests (this form is for texts of generate); export it --to jsonl",
                 printable(file.path()));
  BatchExport answers(file);
  write_text(out, [&answers](const TextSink& sink) { answers.write(sink); });
}

}  // namespace magister
