// Records that are learnt as they are - texts, chats or ids - as tokens, and which of them are learnt.
#pragma once

#include <optional>

#include "magister/io/dataset/dataset.h"
#include "magister/run/sample_plan.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/checkpoint.h"
#include "tasks/train/config.h"

namespace magister {

class TextEncoder {
 public:
  // config.dataset decides the kind. Both are kept by reference; tokenizer, template and end tokens that are needed become a part of the
  // checkpoint's identity. Throws Error(kConfig) where an end token is to be appended and the model names none.
  TextEncoder(Checkpoint& checkpoint, const TrainConfig& config);

  // dataset: names the fields, of the records that are learnt or of those that are held out; its kind is config.dataset's. Throws
  // Error(kData) with the record's place.
  SampleTokens encode(const Record& record, const DatasetConfig& dataset) const;
  bool has_chats() const { return chat_.has_value(); }
  TokenId appended() const { return eos_; }  // -1: none
  // False: a text is its tokens, and nothing else.
  bool changes_texts() const { return chat_ || eos_ >= 0; }

 private:
  const TrainConfig& config_;
  const Tokenizer* tokenizer_ = nullptr;  // null: the data set gives ids
  std::optional<ChatPrompts> chat_;
  TokenId eos_ = -1;  // that ends a text; -1: none is appended
};

}  // namespace magister
