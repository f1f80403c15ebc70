#include "text/protobuf.h"

#include <cstring>

#include "magister/core/error.h"

namespace magister {

std::uint64_t ProtobufReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    MAGISTER_CHECK(!rest_.empty(), ExitCode::kData,
                   "{}: ends in the middle of a number (the model is cut off); fetch the file again", source_);
    const auto byte = static_cast<unsigned char>(rest_[0]);
    rest_.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  fail(ExitCode::kData,
       "{}: a number has more than ten bytes (this is not a SentencePiece model); fetch the file again", source_);
}

bool ProtobufReader::next() {
  if (rest_.empty()) return false;
  const std::uint64_t key = varint();
  type_ = static_cast<unsigned>(key & 7);
  MAGISTER_CHECK(key >> 3 != 0 && key >> 3 < 1u << 29, ExitCode::kData,
                 "{}: a field has the number {} (this is not a SentencePiece model); fetch the file again", source_,
                 key >> 3);
  field_ = static_cast<std::uint32_t>(key >> 3);
  if (type_ == 0) {
    number_ = varint();
    return true;
  }
  MAGISTER_CHECK(type_ == 1 || type_ == 2 || type_ == 5, ExitCode::kData,
                 "{}: field {} has the wire type {} (this is not a SentencePiece model); fetch the file again", source_,
                 field_, type_);
  const std::uint64_t size = type_ == 2 ? varint() : type_ == 1 ? 8 : 4;
  MAGISTER_CHECK(size <= rest_.size(), ExitCode::kData,
                 "{}: field {} has {} bytes of {} that are left (the model is cut off); fetch the file again", source_,
                 field_, size, rest_.size());
  bytes_ = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

void ProtobufReader::need_type(unsigned wanted, const char* what) const {
  MAGISTER_CHECK(type_ == wanted, ExitCode::kData,
                 "{}: field {} has the wire type {} instead of that of {} (this is not a SentencePiece model); fetch "
                 "the file again",
                 source_, field_, type_, what);
}

std::uint64_t ProtobufReader::number() const {
  need_type(0, "a number");
  return number_;
}

float ProtobufReader::real() const {
  need_type(5, "a float");
  float value = 0;
  std::memcpy(&value, bytes_.data(), sizeof value);
  return value;
}

std::string_view ProtobufReader::bytes() const {
  need_type(2, "a text or a message");
  return bytes_;
}

}  // namespace magister
