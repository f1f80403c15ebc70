// The part of protobuf's wire format that a SentencePiece model needs: fields in order, every size checked.
// Source: protobuf's encoding specification (wire types 0, 1, 2, 5; groups are refused).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace magister {

class ProtobufReader {
 public:
  // bytes: one message. source names the file in messages. Throws Error(kData).
  ProtobufReader(std::string_view bytes, const std::string& source) : rest_(bytes), source_(source) {}

  // Moves to the next field; false at the end of the message.
  bool next();
  std::uint32_t field() const { return field_; }
  // The value of the current field; throws if it has another type.
  std::uint64_t number() const;
  bool flag() const { return number() != 0; }
  float real() const;
  std::string_view bytes() const;

 private:
  std::uint64_t varint();
  void need_type(unsigned wanted, const char* what) const;

  std::string_view rest_;
  const std::string& source_;
  std::uint32_t field_ = 0;
  unsigned type_ = 0;
  std::uint64_t number_ = 0;
  std::string_view bytes_;
};

}  // namespace magister
