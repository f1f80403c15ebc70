// See request_answers.h. Source of the form: OpenAI's Batch API, output file; ChatCompletion of its Python package.
#include "tasks/generate/request_answers.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "magister/core/error.h"
#include "magister/io/dataset/record_json.h"
#include "magister/io/results/reader.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLeastLogprob = -9999.0;  // stands for minus infinity in that form

std::string text_of_json(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json logprob_of(TokenId id, float logprob, const Tokenizer& tokenizer) {
  const std::string bytes(tokenizer.token_bytes(id));
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  // The shortest decimal that reads back as the same f32.
  const double shown = std::isfinite(logprob) ? std::stod(fmt::format("{}", logprob)) : kLeastLogprob;
  return {{"token", bytes}, {"logprob", shown}, {"bytes", std::move(numbers)}};
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

// The tokens without the one that ended the text.
Json logprobs_of(const Slots& slots, const GenerateShape& shape, std::uint64_t text, const RequestKind& kind,
                 const Tokenizer& tokenizer) {
  Json content = Json::array();
  const std::uint64_t begin = text * shape.slots, length = slots.lengths[text];
  for (std::uint64_t i = begin; i < begin + length; ++i) {
    const auto& ends = kind.stops.tokens;
    if (i + 1 == begin + length && std::find(ends.begin(), ends.end(), slots.ids[i]) != ends.end()) break;
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
  std::vector<TextColumn> columns;
  columns.push_back({kRequestModel.spec(num_texts), models});
  columns.push_back({kRequestLogprobs.spec(num_texts), logprobs});
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
    for (std::uint64_t i = first; i < end; ++i) choices.push_back(choice(i, i - first));
    Json body = {
        {"id", "chatcmpl-" + name},
        {"object", "chat.completion"},
        {"created", created_},
        {"model", models_ ? models_->text(first) : std::string()},
        {"choices", std::move(choices)},
        {"usage", {{"prompt_tokens", prompt}, {"completion_tokens", written}, {"total_tokens", prompt + written}}}};
    return {{"id", "batch_req_" + name},
            {"custom_id", key(first)},
            {"response", {{"status_code", 200}, {"request_id", "req_" + name}, {"body", std::move(body)}}},
            {"error", nullptr}};
  }

  Json choice(std::uint64_t i, std::uint64_t index) {
    const std::string logprobs = logprobs_ ? logprobs_->text(i) : "";
    return {{"index", index},
            {"message", {{"role", "assistant"}, {"content", texts_.text(i)}, {"refusal", nullptr}}},
            {"logprobs", logprobs.empty() ? Json() : Json::parse(logprobs)},
            {"finish_reason", file_.rows(generate_column::kFinishReason, i, 1)[0] == 0 ? "stop" : "length"}};
  }

  std::string key(std::uint64_t i) const {
    std::string key(file_.column("/samples/key", ColumnType::kUtf8).width, '\0');
    file_.read("/samples/key", i, std::as_writable_bytes(std::span(key)));
    key.resize(key.find_last_not_of('\0') + 1);
    return key;
  }

  const ResultsReader& file_;
  ResultsTextColumn texts_;
  std::optional<ResultsTextColumn> models_, logprobs_;
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
