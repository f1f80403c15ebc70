// Prepares records as TRL's DPOTrainer and RewardTrainer (1.16) do: without a prompt field, the common beginning of
// both answers is the prompt; texts end with the end token; a chat's prompt ends with the generation prompt.
#include "tasks/train/preference_pairs.h"

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "magister/io/dataset/field_path.h"
#include "magister/io/dataset/record_json.h"
#include "magister/runtime/end_tokens.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

bool begins_character(const std::string& text, std::size_t place) {
  return place >= text.size() || (static_cast<unsigned char>(text[place]) & 0xC0) != 0x80;
}

// Length in bytes of the common beginning, in whole characters. A space before the first difference belongs to the
// answers. If one text is the beginning of the other, its last character belongs to the answer.
std::size_t common_text(const std::string& a, const std::string& b) {
  const auto common = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  std::size_t end = common;
  const bool differs = common < std::min(a.size(), b.size());
  if (!differs && end > 0) --end;
  while (end > 0 && !(begins_character(a, end) && begins_character(b, end))) --end;
  return differs && end > 0 && a[end - 1] == ' ' ? end - 1 : end;
}

std::size_t common_messages(const ordered_json& a, const ordered_json& b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  std::size_t common = 0;
  while (common < shorter && a[common] == b[common]) ++common;
  return std::min(common, shorter - 1);
}

ordered_json messages(const ordered_json& list, std::size_t begin, std::size_t end) {
  ordered_json part = ordered_json::array();
  for (std::size_t i = begin; i < end; ++i) part.push_back(list[i]);
  return part;
}

ordered_json joined(const ordered_json& prompt, const ordered_json& answer) {
  ordered_json all = prompt;
  for (const ordered_json& message : answer) all.push_back(message);
  return all;
}

std::size_t common_tokens(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

const char* kind_of(const ordered_json& value) {
  return value.is_string() ? "a text" : value.is_array() ? "a list" : "neither a text nor a list of messages";
}

}  // namespace

PairEncoder::PairEncoder(Checkpoint& checkpoint, const PairRules& rules) : checkpoint_(checkpoint), rules_(rules) {
  checkpoint_.tokenizer();
}

double PairEncoder::margin(const Record& record) const {
  const std::string& field = rules_.dataset.margin_field;
  if (field.empty()) return 0;
  const ordered_json& value = record_field(record, field);
  MAGISTER_CHECK(value.is_number() && std::isfinite(value.get<double>()), ExitCode::kData,
                 "{}: \"{}\" is {} (the margin of a pair is a number); fix this record, or remove dataset.margin",
                 record.where, printable(field), printable(record_text(value), 60));
  return value.get<double>();
}

PairEncoder::Answers PairEncoder::answers(const Record& record) const {
  const DatasetConfig& names = rules_.dataset;
  Answers found{nullptr, record_field(record, names.chosen_field), record_field(record, names.rejected_field)};
  for (const auto& [name, value] :
       {std::pair(&names.chosen_field, &found.chosen), std::pair(&names.rejected_field, &found.rejected)}) {
    MAGISTER_CHECK(value->is_string() || value->is_array(), ExitCode::kData,
                   "{}: \"{}\" is {} (an answer is a text or a list of messages); fix this record", record.where,
                   printable(*name), kind_of(*value));
    MAGISTER_CHECK(value->is_array() ? !value->empty() : !value->get_ref<const std::string&>().empty(), ExitCode::kData,
                   "{}: \"{}\" is empty (there is nothing to prefer); fix or remove this record", record.where,
                   printable(*name));
  }
  MAGISTER_CHECK(found.chosen != found.rejected, ExitCode::kData,
                 "{}: \"{}\" and \"{}\" are the same (none of them is preferred); remove this record", record.where,
                 printable(names.chosen_field), printable(names.rejected_field));
  const std::string field = names.prompt_field.empty() ? "prompt" : names.prompt_field;
  if (!names.prompt_field.empty() || record.fields->contains(field)) {
    found.prompt = record_field(record, field);
    MAGISTER_CHECK(found.prompt.is_string() || found.prompt.is_array(), ExitCode::kData,
                   "{}: \"{}\" is {} (a prompt is a text or a list of messages); fix this record", record.where,
                   printable(field), kind_of(found.prompt));
  }
  return found;
}

// Refuses data sets with both texts and chats, since a model would learn two formats.
void PairEncoder::require_one_kind(const Answers& answers, const std::string& where) {
  const bool chats = answers.chosen.is_array();
  const bool alike =
      answers.rejected.is_array() == chats && (answers.prompt.is_null() || answers.prompt.is_array() == chats);
  MAGISTER_CHECK(alike, ExitCode::kData,
                 "{}: of prompt, chosen and rejected some are texts and others lists (a pair is written in one way); "
                 "fix this record",
                 where);
  if (!chats_) {
    chats_ = chats;
    if (chats) {
      chat_.emplace(checkpoint_, rules_.dataset);
      // they decide the end tokens of the student
      if (rules_.objective != ObjectiveKind::kReward) checkpoint_.end_tokens();
    } else if (rules_.append_eos) {
      eos_ = text_end_token(checkpoint_);
      MAGISTER_CHECK(eos_ >= 0, ExitCode::kConfig,
                     "{}: train.append_eos is true, but the model names no end token (nothing says where answers end); "
                     "set it to false",
                     printable(checkpoint_.path(), 4096));
    }
  }
  MAGISTER_CHECK(
      *chats_ == chats, ExitCode::kData,
      "{}: the answers are {}, those of the first record are {} (a data set is written in one way); fix this "
      "record",
      where, chats ? "lists of messages" : "texts", chats ? "texts" : "lists of messages");
}

std::vector<TokenId> PairEncoder::tokens(const ordered_json& prompt, const ordered_json& answer,
                                         const std::string& where) const {
  if (chat_) return chat_->encode({joined(prompt, answer)}, false, where);
  std::vector<TokenId> ids;
  checkpoint_.tokenizer().encode(prompt.get<std::string>() + answer.get<std::string>(), EncodeOptions{}, ids);
  if (eos_ >= 0 && (ids.empty() || ids.back() != eos_)) ids.push_back(eos_);
  return ids;
}

std::vector<TokenId> PairEncoder::prompt_tokens(const ordered_json& prompt, const std::string& where) const {
  if (chat_) return prompt.empty() ? std::vector<TokenId>() : chat_->encode({prompt}, true, where);
  std::vector<TokenId> ids;
  checkpoint_.tokenizer().encode(prompt.get<std::string>(), EncodeOptions{}, ids);
  return ids;
}

SampleTokens PairEncoder::cut(std::vector<TokenId> ids, std::size_t prompt_length) const {
  std::vector<std::uint8_t> marks(ids.size(), 0);
  std::fill(marks.begin() + static_cast<std::ptrdiff_t>(prompt_length), marks.end(), std::uint8_t{1});
  if (ids.size() > rules_.max_length) {
    const auto over = static_cast<std::ptrdiff_t>(ids.size() - rules_.max_length);
    const bool end = rules_.truncation == TruncationMode::kKeepEnd;
    ids = end ? std::vector(ids.begin() + over, ids.end()) : std::vector(ids.begin(), ids.end() - over);
    marks = end ? std::vector(marks.begin() + over, marks.end()) : std::vector(marks.begin(), marks.end() - over);
  }
  return {std::move(ids), std::move(marks)};
}

std::vector<SampleTokens> PairEncoder::encode(const Record& record) {
  Answers pair = answers(record);
  require_one_kind(pair, record.where);
  margin(record);
  if (rules_.objective == ObjectiveKind::kReward) {
    const ordered_json none = *chats_ ? ordered_json::array() : ordered_json("");
    const ordered_json& prompt = pair.prompt.is_null() ? none : pair.prompt;
    std::vector<TokenId> chosen = tokens(prompt, pair.chosen, record.where),
                         rejected = tokens(prompt, pair.rejected, record.where);
    if (std::max(chosen.size(), rejected.size()) > rules_.max_length) return {{{}, {}}, {{}, {}}};
    return {cut(std::move(chosen), 0), cut(std::move(rejected), 0)};
  }
  if (pair.prompt.is_null()) {
    const std::size_t common = *chats_ ? common_messages(pair.chosen, pair.rejected)
                                       : common_text(pair.chosen.get<std::string>(), pair.rejected.get<std::string>());
    MAGISTER_CHECK(common > 0, ExitCode::kData,
                   "{}: there is no prompt, and \"{}\" and \"{}\" have no common beginning (nothing says what they "
                   "answer); name its field with dataset.prompt, or fix this record",
                   record.where, printable(rules_.dataset.chosen_field), printable(rules_.dataset.rejected_field));
    const ordered_json chosen = std::move(pair.chosen), rejected = std::move(pair.rejected);
    if (*chats_) {
      pair = {messages(chosen, 0, common), messages(chosen, common, chosen.size()),
              messages(rejected, common, rejected.size())};
    } else {
      const std::string a = chosen.get<std::string>(), b = rejected.get<std::string>();
      pair = {a.substr(0, common), a.substr(common), b.substr(common)};
    }
  }
  std::vector<TokenId> chosen = tokens(pair.prompt, pair.chosen, record.where),
                       rejected = tokens(pair.prompt, pair.rejected, record.where);
  // A token may cover the end of the prompt and the beginning of the answer. So the answer begins where its tokens
  // differ from those of the prompt.
  const std::vector<TokenId> prompt = prompt_tokens(pair.prompt, record.where);
  const std::size_t length = std::min(common_tokens(prompt, chosen), common_tokens(prompt, rejected));
  return {cut(std::move(chosen), length), cut(std::move(rejected), length)};
}

}  // namespace magister
