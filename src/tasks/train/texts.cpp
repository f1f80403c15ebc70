// See texts.h.
#include "tasks/train/texts.h"

#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/runtime/end_tokens.h"

namespace magister {

TextEncoder::TextEncoder(Checkpoint& checkpoint, const TrainConfig& config) : config_(config) {
  if (!config_.dataset.tokens_field.empty()) return;
  tokenizer_ = &checkpoint.tokenizer();
  if (!config_.dataset.messages_field.empty()) {
    chat_.emplace(checkpoint, config_.dataset);
    checkpoint.end_tokens();  // the student's are made of them
  } else if (config_.append_eos) {
    eos_ = text_end_token(checkpoint);
    MAGISTER_CHECK(eos_ >= 0, ExitCode::kConfig,
                   "{}: train.append_eos is true, but the model names no end token (nothing says where texts end); set "
                   "it to false",
                   config_.name);
  }
}

SampleTokens TextEncoder::encode(const Record& record, const DatasetConfig& dataset) const {
  if (tokenizer_ == nullptr) return {record.tokens};
  if (!chat_) {
    std::vector<TokenId> ids;
    tokenizer_->encode(record.text, EncodeOptions{}, ids);
    if (eos_ >= 0 && (ids.empty() || ids.back() != eos_)) ids.push_back(eos_);
    return {std::move(ids)};
  }
  const ChatPrompts::Chat chat = ChatPrompts::chat_of(record, dataset);
  if (!config_.assistant_only) return {chat_->encode(chat, false, record.where)};
  return chat_->encode_marked(chat, record.where, false);
}

}  // namespace magister
