// See objective_writer.h.
#include "tasks/exam/objective_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/text/folded.h"
#include "tasks/exam/duplicates.h"
#include "tasks/exam/worker.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kLeastWords = 3, kMostAvoided = 10;
constexpr int kLeastCharacters = 10, kMostCharacters = 160;

// The text of a complete reply on one line; empty for another reply.
std::string text_of_reply(const std::string& reply) {
  const ordered_json written = ordered_json::parse(reply, nullptr, false);
  if (!written.is_object() || !written.contains("objective") || !written["objective"].is_string()) return "";
  std::string text;
  for (const char c : written["objective"].get<std::string>()) {
    const bool space = static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
    if (!space)
      text += c;
    else if (!text.empty() && text.back() != ' ')
      text += ' ';
  }
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

}  // namespace

std::string objective_schema() {
  return ordered_json{
      {"type", "object"},
      {"properties",
       {{"objective", {{"type", "string"}, {"minLength", kLeastCharacters}, {"maxLength", kMostCharacters}}}}},
      {"required", ordered_json::array({"objective"})}}
      .dump();
}

std::string auto_number(std::size_t index) { return fmt::format("1.{}", index + 1); }

std::size_t passage_of_objective(std::size_t index, std::size_t count, std::size_t num_chunks, std::uint64_t attempt) {
  const std::size_t first = index * num_chunks / count, end = (index + 1) * num_chunks / count;
  return first + attempt % std::max<std::size_t>(1, end - first);
}

ordered_json objective_fields(const std::string& passage, const std::vector<std::string>& avoid) {
  ordered_json fields = empty_fields();
  fields["passages"] = ordered_json::array({passage});
  fields["avoid"] = avoid;
  return fields;
}

ObjectiveWriter::ObjectiveWriter(const ExamSetup& setup)
    : setup_(setup), objectives_(setup.objectives), written_(objectives_.size()), prompts_(objectives_.size()) {}

std::vector<GenerationRequest> ObjectiveWriter::write_missing() {
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < objectives_.size(); ++i) {
    if (!objectives_[i].text.empty()) continue;
    objectives_[i].passage = passage_of_objective(i, objectives_.size(), setup_.chunks.size(), attempt_);
    prompts_[i] = prompt(i);
    requests.push_back({kObjectiveRecords + i, attempt_, prompts_[i],
                        static_cast<std::int64_t>(setup_.config.max_new_tokens.tokens()),
                        setup_.objective_constraint.get()});
  }
  pending_ = requests.size();
  return requests;
}

std::vector<TokenId> ObjectiveWriter::prompt(std::size_t index) const {
  const std::string& passage = setup_.chunks[*objectives_[index].passage].text;
  std::vector<std::string> avoid;
  for (const ExamObjective& other : objectives_) {
    if (attempt_ > 0 && !other.text.empty() && avoid.size() < kMostAvoided) avoid.push_back(other.text);
  }
  const std::string& number = objectives_[index].number;
  std::vector<TokenId> tokens =
      setup_.prompts.encode(ExamPrompt::kObjective, objective_fields(passage, avoid), "objective " + number);
  if (tokens.size() <= setup_.config.max_prompt_length.tokens() || avoid.empty()) return tokens;
  return setup_.prompts.encode(ExamPrompt::kObjective, objective_fields(passage, {}), "objective " + number);
}

std::vector<GenerationRequest> ObjectiveWriter::take(const Generation& answer) {
  const std::size_t index = answer.record - kObjectiveRecords;
  written_[index] = text_of_reply(setup_.text_of_tokens(prompts_[index], answer.tokens));
  if (--pending_ > 0) return {};
  // In their order, so that of two that are alike the first one stays.
  bool missing = false;
  for (std::size_t i = 0; i < objectives_.size(); ++i) {
    if (!objectives_[i].text.empty()) continue;
    if (is_new(written_[i])) objectives_[i].text = written_[i];
    missing = missing || objectives_[i].text.empty();
  }
  ++attempt_;
  return missing && attempt_ < setup_.config.bounds.generate ? write_missing() : std::vector<GenerationRequest>();
}

bool ObjectiveWriter::is_new(const std::string& text) const {
  if (text.size() > kObjectiveBytes || folded_words(text).size() < kLeastWords) return false;
  const auto signature = minhash(text);
  return std::none_of(objectives_.begin(), objectives_.end(), [&](const ExamObjective& other) {
    return !other.text.empty() &&
           similarity(signature, minhash(other.text)) >= setup_.config.limits_of_checks.duplicate;
  });
}

std::string objective_list(const std::vector<ExamObjective>& objectives, const std::vector<SourceChunk>& chunks) {
  std::string list =
      "# Learning objectives that the model wrote from the source. Edit them, and name this file as objectives.path.\n";
  for (const ExamObjective& one : objectives) {
    if (one.text.empty()) continue;
    const SourceChunk& cited = chunks.at(one.passage.value());
    list +=
        fmt::format("# {}, passage {}\n{} {}\n", printable(cited.path, 4096), cited.number + 1, one.number, one.text);
  }
  return list;
}

std::string objective_list_json(const std::vector<ExamObjective>& objectives, const std::vector<SourceChunk>& chunks) {
  ordered_json list = ordered_json::array();
  for (const ExamObjective& one : objectives) {
    if (one.text.empty()) continue;
    const SourceChunk& cited = chunks.at(one.passage.value());
    list.push_back({{"number", one.number}, {"text", one.text}, {"path", cited.path}, {"passage", cited.number}});
  }
  return list.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace magister
