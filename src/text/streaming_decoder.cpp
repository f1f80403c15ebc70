// The last returned tokens are decoded again together with the new ones, so each step costs a few tokens whatever the
// text's length. Text that ends with U+FFFD may end within a character: it is held back until one more token decides.
#include "magister/text/streaming_decoder.h"

#include <span>

namespace magister {

std::string StreamingDecoder::text_from(std::size_t begin) const {
  return tokenizer_.decode(std::span(ids_).subspan(begin), skip_special_tokens_);
}

std::string StreamingDecoder::push(TokenId id) {
  ids_.push_back(id);
  const std::string all = text_from(0);
  if (all.empty() || all.ends_with("\xEF\xBF\xBD")) return {};
  std::string emitted;
  if (num_emitted_ > 0) emitted = tokenizer_.decode(std::span(ids_).first(num_emitted_), skip_special_tokens_);
  if (all.size() <= emitted.size()) return {};
  // The tokens that stay need a text of their own. Otherwise a decoder that strips spaces at the start of a text (Strip
  // with start 2) would strip those of the next tokens too.
  while (num_emitted_ > 0 && text_from(num_emitted_).empty()) --num_emitted_;
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(num_emitted_));
  num_emitted_ = ids_.size();
  return all.substr(emitted.size());
}

std::string StreamingDecoder::finish() {
  const std::string all = text_from(0);
  std::string emitted;
  if (num_emitted_ > 0) emitted = tokenizer_.decode(std::span(ids_).first(num_emitted_), skip_special_tokens_);
  ids_.clear();
  num_emitted_ = 0;
  return all.size() > emitted.size() ? all.substr(emitted.size()) : std::string();
}

}  // namespace magister
